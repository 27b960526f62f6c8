"""One attention call as every kernel sees it: 4-D tensors of any strides, options, and numbers derived from them."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rela.kernels.attention.activations import ACTIVATIONS, Activation
from rela.packing import Packing

# of float32 products: three TF32 products, on the H200 three times as fast as "ieee" and closer to float64
PRECISION = "tf32x3"


def ceil_div(a: int, b: int) -> int:
    """triton.cdiv without its 5 µs."""
    return -(-a // b)


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; one elsewhere."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def power_of_2(n: int) -> int:
    """The least power of two that is not less than n."""
    return 1 << (n - 1).bit_length()


def typical_length(rows: int, packing: Packing | None) -> int:
    """A length that few sequences exceed, for which tiles are chosen.

    All `rows` are one sequence, unless they are packed: then it is twice the mean length, and at most the longest.
    """
    if packing is None:
        return rows
    return min(packing.max_seqlen, 2 * ceil_div(rows, max(packing.sentences, 1)))


def drop_below(dropout: float) -> int:
    """The dropout rate in units of 2⁻¹⁵, as scores.kept wants it."""
    return min(round(dropout * 2**15), 2**15 - 1)


MEMOS: dict[tuple, dict[Any, Any]] = {}
MOST_MEMOS = 4096  # lengths vary without end; a memo is made again in some dozens of microseconds


def layout_of(x: Tensor | None) -> tuple | None:
    """All that kernels compiled for a tensor may rely on: shape, strides, type, device, and where it begins."""
    return None if x is None else (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16)


def memo_of(*key: Any) -> dict[Any, Any]:
    """The memo of problems with these layouts and options."""
    memo = MEMOS.get(key)
    if memo is None:
        if len(MEMOS) >= MOST_MEMOS:
            MEMOS.clear()
        memo = MEMOS[key] = {}
    return memo


def heads_last(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An unwritten [B, H, N, D] that lies in memory as [B, N, H, D], so that merging the heads is a view."""
    _, H, N, D = shape
    return torch.empty_strided(shape, (N * H * D, D, H * D, 1), dtype=dtype, device=device)


@dataclass(eq=False, slots=True)
class Problem:
    """Tensors and options of one attention call.

    q is [B, H, T, D]; k and v are [B, Hk, S, D]. Packed sequences are one batch element, q [1, H, N, D] packed by
    `queries`, and k and v [1, Hk, M, D] packed by `keys`; their longest lengths only help to choose tiles. `mask` is
    boolean (True: may look), or of a floating type and added to the scores. `left` and `right` are the two sides of a
    window, None for no limit. `memo` is where the kernels keep what they derive from a problem's shapes and options:
    problems that share one differ in nothing else than their numbers. `numbers` are the random numbers that a kernel
    has made of the seed, for the backward pass to use again.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    threshold: Tensor | None
    key_lengths: Tensor | None
    mask: Tensor | None
    queries: Packing | None
    keys: Packing | None
    seed: Tensor | None
    scale: float
    activation: str
    causal: bool
    dropout: float
    key_starts: Tensor | None = None
    left: int | None = None
    right: int | None = None
    memo: dict[Any, Any] = field(default_factory=dict)
    numbers: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def of_operator(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        threshold: Tensor | None,
        key_lengths: Tensor | None,
        mask: Tensor | None,
        cu_q: Tensor | None,
        cu_k: Tensor | None,
        max_q: int,
        max_k: int,
        seed: Tensor | None,
        *options: Any,
    ) -> "Problem":
        """The problem of an operator's arguments, which PyTorch wants flat; `options` are scale … right."""
        queries = None if cu_q is None else Packing(cu_q, max_q)
        keys = None if cu_k is None else Packing(cu_k, max_k)
        scale, activation, causal, dropout, key_starts, left, right = options
        given = (q, k, v, threshold, key_lengths, mask, cu_q, cu_k, seed, key_starts)
        plain = scale, activation, causal, dropout
        memo = memo_of(*map(layout_of, given), max_q, max_k, *plain, left, right)
        tensors = q, k, v, threshold, key_lengths, mask
        return Problem(*tensors, queries, keys, seed, *plain, key_starts, left, right, memo)

    def layout(self) -> tuple[Any, ...]:
        """What its memo relies on of the tensors that autograd saves: strides, and where they begin."""
        saved = [x for x in (self.q, self.k, self.v, self.mask) if x is not None]
        return *[x.stride() for x in saved], *[x.data_ptr() % 16 for x in saved]

    def note_layout(self) -> None:
        """Leave in the memo how the tensors lie, for `of_saved` in the backward pass."""
        if "layout" not in self.memo:
            self.memo["layout"] = self.layout()

    def of_saved(self) -> "Problem":
        """This problem of saved tensors, by another memo if a hook (`save_on_cpu`) gave them back laid out anew."""
        if self.memo.get("layout") == self.layout():
            return self
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (self.q, self.k, self.v))
        longest = (
            q.shape[2] if self.queries is None else self.queries.max_seqlen,
            k.shape[2] if self.keys is None else self.keys.max_seqlen,
        )
        tensors = q, k, v, self.threshold, self.key_lengths, self.mask, self.cu_q, self.cu_k, *longest, self.seed
        options = self.scale, self.activation, self.causal, self.dropout, self.key_starts, self.left, self.right
        problem = Problem.of_operator(*tensors, *options)
        problem.numbers = self.numbers
        return problem

    @property
    def biased(self) -> bool:
        """Whether the mask is added to the scores."""
        return self.mask is not None and self.mask.dtype != torch.bool

    @property
    def cu_q(self) -> Tensor | None:
        """Cumulative lengths of packed queries, int32 [sequences + 1]."""
        return None if self.queries is None else self.queries.cu_seqlens

    @property
    def cu_k(self) -> Tensor | None:
        """Cumulative lengths of packed keys, int32 [sequences + 1]."""
        return None if self.keys is None else self.keys.cu_seqlens

    @property
    def record(self) -> Activation:
        """What is known of the activation."""
        return ACTIVATIONS[self.activation]

    @property
    def scales_output(self) -> bool:
        """Whether the scale is applied to the output rather than to every score.

        For a homogeneous activation act(x · scale − θ) = scaleᵖ · act(x − θ / scale). In float16 the unscaled scores
        might overflow when they become weights.
        """
        return self.record.degree is not None and self.scale > 0 and self.q.dtype != torch.float16

    def scales(self) -> tuple[float | None, float, float, float]:
        """Factors of the scores (None for one), of θ, of the output and dV, and of dQ and dK."""
        survivors = 1.0 / (1.0 - self.dropout)
        if self.record.degree is None or not self.scales_output:
            return self.scale, 1.0, survivors, self.scale * survivors
        factor = self.scale**self.record.degree * survivors
        return None, 1.0 / self.scale, factor, factor

    @property
    def threshold_gradient_scale(self) -> float:
        """Factor of dθ: that of dQ without the inner derivative of the scaled product."""
        return -self.scales()[3] / self.scale

    @property
    def drop_below(self) -> int:
        """The dropout rate in units of 2⁻¹⁵."""
        return drop_below(self.dropout)

    @property
    def typical_queries(self) -> int:
        """The typical length of a sequence of queries."""
        return typical_length(self.q.shape[2], self.queries)

    @property
    def typical_keys(self) -> int:
        """The typical length of a sequence of keys."""
        return typical_length(self.k.shape[2], self.keys)

    def optional_arguments(self) -> tuple[Tensor | int | None, ...]:
        """Tensors and sides of the window, as the plain kernels take them; what is None costs nothing there."""
        mask = self.mask
        if mask is not None and mask.dtype == torch.bool:
            mask = mask.view(torch.uint8)
        tensors = self.threshold, self.key_lengths, self.key_starts, mask, self.cu_q, self.cu_k, self.seed
        return *tensors, self.left, self.right

    def constants(self) -> dict[str, object]:
        """Sizes and compile-time choices, by the names the kernels of rectifiers give them."""
        return {
            **self.sizes(),
            "ACTIVATION": self.activation,
            "RECTIFIES": self.record.rectifies,
            "BIASED": self.biased,
        }

    def sizes(self) -> dict[str, object]:
        """Those of every kernel."""
        _, H, T, D = self.q.shape
        mask_strides: tuple[int, ...] = (0, 0, 0, 0)
        if self.mask is not None:
            mask_strides = tuple(
                0 if size == 1 else stride for size, stride in zip(self.mask.shape, self.mask.stride(), strict=True)
            )
        sequences = 0 if self.queries is None else self.queries.sentences
        return {
            "mask_strides": mask_strides,
            "H": H,
            "T": T,
            "S": self.k.shape[2],
            "sequences": sequences,
            "search_steps": sequences.bit_length(),
            "drop_below": self.drop_below,
            "GROUP": H // self.k.shape[1],
            "D": D,
            "BD": max(16, power_of_2(D)),
            "CAUSAL": self.causal,
            "PRECISION": PRECISION,
        }

    def like_queries(self, dtype: torch.dtype) -> Tensor:
        """An unwritten [B, H, T, D] that lies in memory as [B, T, H, D]."""
        return heads_last(self.q.shape, dtype, self.q.device)

    def like_keys(self) -> Tensor:
        """An unwritten [B, Hk, S, D] that lies in memory as [B, S, Hk, D]."""
        return heads_last(self.k.shape, self.k.dtype, self.k.device)
