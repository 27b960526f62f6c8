"""From scores to weights: one function an equation, all with the same signature.

Each takes scores [..., T, S] and `allowed`, a boolean mask that broadcasts to them (True where a query may
look) or None, and gives weights of the scores' shape and type. A forbidden key weighs exactly zero, also in
a row where every key is forbidden, and no gradient flows through it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention.kinds import split_parameter

WeightFunction = Callable[[Tensor, Tensor | None], Tensor]


def rectifier(zero_at_zero: bool = False) -> Callable[[Callable[[Tensor], Tensor]], WeightFunction]:
    """A decorator that gives a function of each score alone its mask: forbidden keys weigh zero and pass no gradient.

    Forbidden scores are set to 0 before the function, so that what was there reaches no slope, and their weights to 0
    after it. A function that is 0 at 0 needs only the first, and may say so with `zero_at_zero`.
    """

    def with_mask(function: Callable[[Tensor], Tensor]) -> WeightFunction:
        @functools.wraps(function)
        def weights(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
            if allowed is None:
                return function(scores)
            masked = function(scores.masked_fill(~allowed, 0.0))
            return masked if zero_at_zero else masked.masked_fill(~allowed, 0.0)

        return weights

    return with_mask


def softmax(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """exp(s) / Σ exp(s): every allowed key gets something."""
    if allowed is None:
        return scores.softmax(-1)
    # -inf, since an allowed score may be the lowest finite number; 0 in a row with no allowed key, which would be 0/0.
    some = allowed.any(-1, keepdim=True)
    lowest = torch.zeros_like(some, dtype=scores.dtype).masked_fill(some, -torch.inf)
    return torch.where(allowed, scores, lowest).softmax(-1).masked_fill(~allowed, 0.0)


def sparsemax(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The point of the simplex nearest to the scores (Martins and Astudillo, 2016)."""
    return on_simplex(2.0, scores, allowed)


def entmax15(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """1.5-entmax (Peters et al., 2019), half-way between softmax and sparsemax."""
    return on_simplex(1.5, scores, allowed)


def entmax(alpha: float) -> WeightFunction:
    """α-entmax by bisection: softmax for α → 1, sparsemax at 2."""

    def weights(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        return on_simplex(alpha, scores, allowed)

    return weights


def topk(count: int) -> WeightFunction:
    """Softmax over the `count` largest scores of a row, zero elsewhere (sparse attention of Zhao et al., 2019)."""

    def weights(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        seen = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        most = min(count, scores.size(-1))
        # `most` depends on the number of keys, which a graph leaves open: add keys that are the lowest of all
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            seen, most = F.pad(seen, (0, count), value=-torch.inf), count
        kept = seen.topk(most, dim=-1).indices
        among_largest = torch.zeros_like(seen, dtype=torch.bool).scatter(-1, kept, 1)[..., : scores.size(-1)]
        return softmax(scores, among_largest if allowed is None else among_largest & allowed)

    return weights


@rectifier(zero_at_zero=True)
def relu(scores: Tensor) -> Tensor:
    """max(0, s): equation 3 of the paper. A row may be all zero: null attention."""
    return F.relu(scores)


@rectifier(zero_at_zero=True)
def relu2(scores: Tensor) -> Tensor:
    """max(0, s)², smooth at zero."""
    return F.relu(scores).square()


@rectifier(zero_at_zero=True)
def gelu(scores: Tensor) -> Tensor:
    """s Φ(s): row 9 of Table 1."""
    return F.gelu(scores)


@rectifier(zero_at_zero=True)
def leaky_relu(scores: Tensor) -> Tensor:
    """max(s, s/100): row 10 of Table 1."""
    return F.leaky_relu(scores)


FUNCTIONS: dict[str, WeightFunction] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "relu": relu,
    "relu2": relu2,
    "gelu": gelu,
    "leaky_relu": leaky_relu,
}
"""The weights without a parameter, by their names in `rela.attention.kinds.WEIGHTS`."""


def weights_of(name: str) -> WeightFunction:
    """The function of a weights' name, such as "relu" or "entmax:1.3"."""
    name, parameter = split_parameter(name)
    if parameter is None:
        return FUNCTIONS[name]
    return entmax(parameter) if name == "entmax" else topk(int(parameter))


def on_simplex(alpha: float, scores: Tensor, allowed: Tensor | None) -> Tensor:
    """α-entmax of the allowed keys of each row, in at least float32 (sorts and sums do not survive less)."""
    if scores.size(-1) == 0:
        return scores  # the projection takes a maximum, and there is none over no keys
    exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if allowed is None:
        return Entmax.apply(exact, alpha).to(scores.dtype)
    # α-entmax gives 0 to every score 1/(α-1) or more below the largest, so such a score stands for a forbidden
    # key exactly; -inf would turn into NaN inside the projection.
    largest = exact.detach().masked_fill(~allowed, torch.finfo(exact.dtype).min).amax(-1, keepdim=True)
    weights = Entmax.apply(torch.where(allowed, exact - largest, -2.0 / (alpha - 1.0)), alpha)
    return weights.masked_fill(~allowed, 0.0).to(scores.dtype)


class Entmax(torch.autograd.Function):
    """α-entmax of each row: the value from the `entmax` package, the slope from the value.

    The package's own autograd functions are class methods, which torch.compile cannot trace. One formula serves
    every α (Peters et al., 2019, proposition 2): with s = p^(2-α) on the support, J = diag(s) - s sᵀ / Σ s. It is
    written in differentiable operations of p, which is itself a function of the scores, so that second derivatives
    follow from it. There is no `jvp`: with one, forward mode within forward mode gave wrong second derivatives.
    """

    @staticmethod
    def forward(scores: Tensor, alpha: float) -> Tensor:
        package = entmax_package()
        # In a row with NaN or infinity the package finds no support and reads outside the row: an abort on a GPU.
        broken = ~scores.isfinite().all(-1, keepdim=True)
        scores = scores.masked_fill(broken, 0.0)
        if alpha == 2.0:
            p = package.sparsemax(scores, dim=-1)
        elif alpha == 1.5:
            p = package.entmax15(scores, dim=-1)
        else:
            p = package.entmax_bisect(scores, alpha, dim=-1)
        return p.masked_fill(broken, torch.nan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.alpha = inputs[1]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], scores: Tensor, alpha: float) -> tuple[Tensor, int]:
        """Rows of several batches are rows like others."""
        return Entmax.apply(scores.movedim(in_dims[0], 0), alpha), 0

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        support = p > 0
        # 1 outside the support, before the power: its slope at 0 may be infinite, and infinity times 0 is NaN.
        s = torch.where(support, torch.where(support, p, 1.0) ** (2.0 - ctx.alpha), 0.0)
        weighted = s * slope
        return weighted - s * (weighted.sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None


def entmax_package() -> ModuleType:
    """The `entmax` package, imported when first needed."""
    try:
        import entmax
    except ImportError:
        raise ImportError("sparsemax and entmax attention need the entmax package: pip install entmax") from None
    return entmax
