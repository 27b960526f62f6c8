"""Fused attention, rectified linear, relu(q kᵀ · scale − θ) v, or on the simplex, without ever forming the weights.

Tensors in, tensors out. Everything here is differentiable once unless it says otherwise, works under torch.compile and
in CUDA graphs, and accepts any strides whose last one is 1. Arguments are checked by those who call: rela/attention.

In eager mode the kernels are called directly, through one light autograd function where there is a gradient. Whatever
watches the dispatcher (a compiler, fake tensors, vmap) sees the operators of operators.py instead.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import rela.kernels.attention.operators  # noqa: F401  registers torch.ops.rela
from rela.device import is_plain_eager
from rela.kernels.attention.backward import backward
from rela.kernels.attention.bias import bias_gradient
from rela.kernels.attention.decode import decode
from rela.kernels.attention.forward import forward
from rela.kernels.attention.problem import Problem, layout_of, memo_of
from rela.kernels.attention.simplex import simplex_forward
from rela.kernels.attention.simplex_backward import simplex_backward
from rela.packing import Packing


def relu_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: tuple[int | None, int | None] = (None, None),
    mask: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor = 0,
    deterministic: bool = False,
    memo: dict | None = None,
) -> Tensor:
    """act(q kᵀ · scale − θ) v for q [B, H, T, D] and k, v [B, Hk, S, D], where Hk divides H.

    Returns the context [B, H, T, D]. A query t sees key s if key_starts[b] ≤ s < key_lengths[b], if `causal` implies
    s ≤ t + S − T, if `window` (left, right) implies −left ≤ s − (t + S − T) ≤ right, and if the boolean `mask`, four
    dimensions that are 1 or those of [B, H, T, S], is True there; hidden keys weigh nothing, and a query that sees
    nothing gets zeros. A float mask is added to the scores, hides where it is −inf, and has a gradient. `threshold` is
    θ [H]. Dropout is a pure function of the seed (an int, or an int64 scalar on the device), batch, head, query and
    key. With `deterministic` the gradients are the same to the last bit each time. `memo` is that of earlier calls with
    the same layouts and options.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    threshold, key_lengths, key_starts = flat(threshold), flat(key_lengths), flat(key_starts)
    random = seed_of(seed, dropout, q)
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    options = scale, activation, causal, dropout
    if not is_plain_eager(q):
        tensors = q, k, v, threshold, key_lengths, mask, None, None, q.shape[2], k.shape[2], random
        return torch.ops.rela.relu_attention(*tensors, *options, key_starts, *window, deterministic)
    if memo is None:
        given = (q, k, v, threshold, key_lengths, mask, key_starts, random)
        memo = memo_of(*map(layout_of, given), *options, *window)
    problem = Problem(
        q,
        k,
        v,
        threshold,
        key_lengths,
        mask,
        None,
        None,
        random,
        scale,
        activation,
        causal,
        dropout,
        key_starts,
        *window,
        memo,
    )
    if wants_gradient(q, k, v, threshold, mask):
        return light_apply(q, k, v, threshold, mask, problem, deterministic)
    return forward(problem)[0]


Repeated = Callable[..., Tensor]


def repeatable(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    key_starts: Tensor | None,
    *,
    gradient: bool,
    decoding: bool,
    dropout: float = 0.0,
    **options: Any,
) -> Repeated | None:
    """A function of these seven arguments that computes `relu_attention`, or `relu_attention_decode`.

    With dropout it takes an eighth, the seed, an int64 scalar on the device. It serves calls in eager mode whose
    arguments have the layouts of these and differ in their numbers alone: whatever follows from layouts and options is
    derived here, once. `options` are those of `repeatable_problem`. None where an argument has to be copied.
    """
    tensors = q, k, v, threshold, mask, key_lengths, key_starts
    problem_of = repeatable_problem(*tensors, dropout=dropout, **options)
    return None if problem_of is None else repeated(problem_of, gradient, decoding)


def repeatable_problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    threshold: Tensor | None,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    key_starts: Tensor | None,
    *,
    scale: float,
    activation: str,
    causal: bool,
    window: tuple[int | None, int | None],
    dropout: float = 0.0,
) -> Callable[..., Problem] | None:
    """A function that makes a problem of tensors with these layouts, and dropout's seed; all share one memo."""
    vectors = [x for x in (threshold, key_lengths, key_starts) if x is not None]
    if any(x.stride(-1) != 1 for x in (q, k, v, *vectors)) or (mask is not None and mask.dim() != 4):
        return None
    options = scale, activation, causal, dropout
    left, right = window
    memo: dict[Any, Any] = {}

    def problem_of(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        threshold: Tensor | None,
        mask: Tensor | None,
        lengths: Tensor | None,
        starts: Tensor | None,
        seed: Tensor | None = None,
    ) -> Problem:
        return Problem(q, k, v, threshold, lengths, mask, None, None, seed, *options, starts, left, right, memo)

    return problem_of


def repeated(problem_of: Callable[..., Problem], gradient: bool, decoding: bool) -> Repeated:
    """What computes the problem of such tensors; the kernels are planned in its first call."""
    if decoding:
        return lambda *tensors: decode(problem_of(*tensors))
    if not gradient:
        return lambda *tensors: forward(problem_of(*tensors))[0]

    def attended_with_gradient(*tensors: Any) -> Tensor:
        deterministic = torch.are_deterministic_algorithms_enabled()
        return light_apply(*tensors[:5], problem_of(*tensors), deterministic)

    return attended_with_gradient


class Attention(torch.autograd.Function):
    """The kernels and their gradients, without the dispatcher between them."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        threshold: Tensor | None,
        mask: Tensor | None,
        problem: Problem,
        deterministic: bool,
    ) -> Tensor:
        out = forward(problem)[0]
        problem.note_layout()
        limits = problem.key_lengths, problem.key_starts, problem.seed
        ctx.save_for_backward(q, k, v, threshold, mask, *limits, *(problem.numbers or ()))
        options = problem.scale, problem.activation, problem.causal, problem.dropout
        sides = problem.left, problem.right
        ctx.rest = problem.queries, problem.keys, options, *sides, problem.memo, deterministic
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        return gradients_once(ctx, d_out) if torch.is_grad_enabled() else gradients(ctx, d_out)


# apply of PyTorch's class in C: the one in Python looks for functorch, which is not there in plain eager mode
light_apply = super(torch.autograd.Function, Attention).apply


def gradients(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of all that `Attention.forward` takes."""
    q, k, v, threshold, mask, key_lengths, key_starts, seed, *numbers = ctx.saved_tensors
    queries, keys, options, left, right, memo, deterministic = ctx.rest
    rest: tuple[Any, ...] = *options, key_starts, left, right, memo, tuple(numbers) or None
    problem = Problem(q, k, v, threshold, key_lengths, mask, queries, keys, seed, *rest).of_saved()
    d_bias = bias_gradient(problem, d_out) if ctx.needs_input_grad[4] else None
    return *backward(problem, d_out, deterministic), d_bias, None, None


gradients_once = once_differentiable(gradients)


def relu_attention_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packing,
    keys: Packing,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor = 0,
    deterministic: bool = False,
) -> Tensor:
    """The same over packed sequences, q [N, H, D] and k, v [M, Hk, D], without computing any padding; gives [N, H, D].

    Rows after the last sequence get zeros and give zero gradients. The longest lengths only choose the tiles: too small
    a number costs speed, not correctness.
    """
    cu_q, cu_k = queries.cu_seqlens.contiguous(), keys.cu_seqlens.contiguous()
    # one batch element whose rows are all sequences
    q, k, v = ((x if x.stride(-1) == 1 else x.contiguous()).transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    threshold = flat(threshold)
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    longest = queries.max_seqlen, keys.max_seqlen
    tensors = q, k, v, threshold, None, None, cu_q, cu_k, *longest, seed_of(seed, dropout, q)
    options = scale, activation, causal, dropout
    if not is_plain_eager(q):
        out = torch.ops.rela.relu_attention(*tensors, *options, None, None, None, deterministic)
    else:
        problem = Problem.of_operator(*tensors, *options, None, None, None)
        if wants_gradient(q, k, v, threshold):
            out = light_apply(q, k, v, threshold, None, problem, deterministic)
        else:
            out = forward(problem)[0]
    return out.squeeze(0).transpose(0, 1)


def relu_attention_with_statistics(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: tuple[int | None, int | None] = (None, None),
    mask: Tensor | None = None,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """relu_attention's output and, from the same pass, three [B, H, T] facts about each row of weights.

    They are the number of non-zero weights (int32), the index of the largest weight, the first of equals and −1 on a
    null row (int32), and that weight (float32, 0 on a null row). Only the output is differentiable.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    tensors = q, k, v, flat(threshold), flat(key_lengths), mask
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    limits = flat(key_starts), *window
    return torch.ops.rela.relu_attention_statistics(*tensors, scale, activation, causal, *limits, deterministic)


def relu_attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    left: int | None = None,
    memo: dict | None = None,
) -> Tensor:
    """relu_attention for a few queries and many keys, without gradients: q [B, H, T, D] with T small, often 1.

    The keys are split over the whole device, and rows of V to which no head of a group gives weight are not read. At
    most `MOST_DECODE_ROWS` queries may share a key head.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    threshold, key_lengths, key_starts = flat(threshold), flat(key_lengths), flat(key_starts)
    if not is_plain_eager(q):
        tensors = q, k, v, threshold, key_lengths, key_starts
        return torch.ops.rela.relu_attention_decode(*tensors, left, scale, activation, causal)
    if memo is None:
        given = (q, k, v, threshold, key_lengths, key_starts)
        memo = memo_of(*map(layout_of, given), scale, activation, causal, left)
    problem = Problem(
        q,
        k,
        v,
        threshold,
        key_lengths,
        None,
        None,
        None,
        None,
        scale,
        activation,
        causal,
        0.0,
        key_starts,
        left,
        None,
        memo,
    )
    return decode(problem)


def simplex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "sparsemax",
    causal: bool = False,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: tuple[int | None, int | None] = (None, None),
    mask: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor = 0,
    memo: dict | None = None,
) -> Tensor:
    """The context [B, H, T, D] of weights on the simplex: "sparsemax", "entmax15" or "entmax:α" with α up to 2.

    Arguments as in `relu_attention`; the mask is boolean. The gradients are the same to the last bit each time.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    key_lengths, key_starts = flat(key_lengths), flat(key_starts)
    random = seed_of(seed, dropout, q)
    options = scale, activation, causal, dropout
    if not is_plain_eager(q):
        tensors = q, k, v, key_lengths, mask, None, None, q.shape[2], k.shape[2], random
        return torch.ops.rela.simplex_attention(*tensors, *options, key_starts, *window)[0]
    if memo is None:
        given = (q, k, v, key_lengths, mask, key_starts, random)
        memo = memo_of(*map(layout_of, given), *options, *window)
    problem = Problem(
        q,
        k,
        v,
        None,
        key_lengths,
        mask,
        None,
        None,
        random,
        scale,
        activation,
        causal,
        dropout,
        key_starts,
        *window,
        memo,
    )
    if wants_gradient(q, k, v):
        return SimplexAttention.apply(q, k, v, problem)
    return simplex_forward(problem)[0]


def simplex_attention_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packing,
    keys: Packing,
    *,
    scale: float,
    activation: str = "sparsemax",
    causal: bool = False,
    dropout: float = 0.0,
    seed: int | Tensor = 0,
) -> Tensor:
    """The same over packed sequences, [N, H, D]; rows and longest lengths as in `relu_attention_packed`."""
    cu_q, cu_k = queries.cu_seqlens.contiguous(), keys.cu_seqlens.contiguous()
    q, k, v = ((x if x.stride(-1) == 1 else x.contiguous()).transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    packed = cu_q, cu_k, queries.max_seqlen, keys.max_seqlen, seed_of(seed, dropout, q)
    options = scale, activation, causal, dropout, None, None, None
    if not is_plain_eager(q):
        out = torch.ops.rela.simplex_attention(q, k, v, None, None, *packed, *options)[0]
    else:
        problem = Problem.of_operator(q, k, v, None, None, None, *packed, *options)
        out = SimplexAttention.apply(q, k, v, problem) if wants_gradient(q, k, v) else simplex_forward(problem)[0]
    return out.squeeze(0).transpose(0, 1)


class SimplexAttention(torch.autograd.Function):
    """The kernels of simplex attention and their gradients, without the dispatcher between them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
        out, levels = simplex_forward(problem)
        problem.note_layout()
        limits = problem.key_lengths, problem.mask, problem.seed, problem.key_starts
        ctx.save_for_backward(q, k, v, *limits, levels)
        ctx.options = problem.scale, problem.activation, problem.causal, problem.dropout
        ctx.packed, ctx.sides, ctx.memo = (problem.queries, problem.keys), (problem.left, problem.right), problem.memo
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, key_lengths, mask, seed, key_starts, levels = ctx.saved_tensors
        (queries, keys), (left, right) = ctx.packed, ctx.sides
        scale, activation, causal, dropout = ctx.options
        problem = Problem(
            q,
            k,
            v,
            None,
            key_lengths,
            mask,
            queries,
            keys,
            seed,
            scale,
            activation,
            causal,
            dropout,
            key_starts,
            left,
            right,
            ctx.memo,
        )
        return *simplex_backward(problem.of_saved(), levels, d_out), None


def wants_gradient(*inputs: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def flat(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def seed_of(seed: int | Tensor, dropout: float, q: Tensor) -> Tensor | None:
    if dropout == 0.0:
        return None
    if isinstance(seed, Tensor):
        return seed
    return torch.full((), seed, dtype=torch.int64, device=q.device)
