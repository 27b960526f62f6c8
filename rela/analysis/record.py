"""The record every measure, picture and page reads: the attention weights of one sentence pair, with its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rela.attention.masks import causal_mask

TYPES = ("encoder", "decoder", "cross")
START, END = "<s>", "</s>"


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """Every layer and head of one sentence pair, for one attention type ('encoder' | 'decoder' | 'cross').

    In the decoder a row is a step: its query is named after the token the step *outputs*. So the queries of
    'decoder' and 'cross' are y₁ … yₙ </s>, the keys of 'decoder' are the inputs <s> y₁ … yₙ, and the keys of
    'cross', like both sides of 'encoder', are x₁ … xₘ </s>. There is no padding.
    """

    kind: str
    """The attention kind of these weights, such as "rela-g"."""
    type: str
    weights: Tensor
    """[L, H, T, S], floating; zero for a pair that is not allowed."""
    queries: tuple[str, ...]
    """The T query tokens (pieces)."""
    keys: tuple[str, ...]
    """The S key tokens (pieces)."""
    mask: Tensor | None = None
    """[T, S], True where a query may look; None means s ≤ t for 'decoder' and everywhere otherwise."""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"attention type is {self.type!r}; wanted one of {', '.join(TYPES)}")
        if self.weights.dim() != 4:
            raise ValueError(f"weights have shape {list(self.weights.shape)}; wanted [layers, heads, queries, keys]")
        wanted = [len(self.queries), len(self.keys)]
        for name, tensor in (("weights", self.weights), ("mask", self.mask)):
            if tensor is not None and list(tensor.shape[-2:]) != wanted:
                raise ValueError(f"shape of {name} is {list(tensor.shape)}; wanted {wanted} last, as queries and keys")

    @property
    def layers(self) -> int:
        return self.weights.size(0)

    @property
    def heads(self) -> int:
        return self.weights.size(1)

    @property
    def allowed(self) -> Tensor:
        """[T, S], True where a query may look."""
        T, S = self.weights.shape[2:]
        if self.mask is not None:
            return self.mask
        if self.type == "decoder":
            return causal_mask(T, S, self.weights.device)
        return self.weights.new_ones(T, S).bool()
