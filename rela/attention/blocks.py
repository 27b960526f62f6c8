"""Attention of rectifiers on a CPU, one block of queries after the other: the weights never exist as a whole.

A rectified weight depends on one score alone. So a block of scores is computed, rectified and multiplied by the values
while it is in the processor's cache, and keys that no query of a block sees are not looked at. The backward pass
computes the weights again. Blocks are of one sentence and depend on the (padded) lengths alone, so that a sentence's
numbers do not depend on how many others are beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rela.attention import reference
from rela.attention.masks import combine_masks
from rela.device import is_plain_eager

WEIGHTS = ("relu", "relu2", "gelu", "leaky_relu")
ADDED_MASKS = ("relu", "relu2")
"""The weights that are zero for a score of -inf, so that a float mask may simply be added."""
FEWEST_SCORES = 128 * 128  # of a head: below that the reference is about as fast
FEWEST_SCORES_OF_16_BITS = 512 * 512
BYTES_OF_A_THREAD = 2**21  # of the scores of a block
ROW_BYTES = 512  # 128 queries of a head in float32, if so many have room: products of fewer rows are slower


class Limits(NamedTuple):
    """What is the same for all blocks of a call: the weights' name, the scale, and what hides keys."""

    weights: str
    scale: float
    key_lengths: list[int] | None
    key_starts: list[int] | None
    left: int | None
    right: int | None
    dropout: float = 0.0
    seed: int = 0
    """Of the first block's dropout; the others count on from it."""

    @staticmethod
    def of_call(
        weights: str,
        scale: float,
        key_lengths: Tensor | None = None,
        key_starts: Tensor | None = None,
        causal: bool = False,
        window: tuple[int | None, int | None] = (None, None),
        dropout: float = 0.0,
    ) -> Limits:
        """Those of the arguments of `rela.attend`; dropout's seed is drawn by torch's generator."""
        lengths, starts = (None if x is None else x.tolist() for x in (key_lengths, key_starts))
        left, right = window
        seed = int(torch.randint(2**62, (), device="cpu")) if dropout else 0
        return Limits(weights, scale, lengths, starts, left, 0 if causal else right, dropout, seed)


class Block(NamedTuple):
    """Queries of some key heads of one sentence, and the keys that at least one of them may see."""

    number: int
    sentence: int
    heads: slice
    """Of the keys."""
    rows: slice
    keys: slice
    above: int | None
    """The diagonal, of rows and keys of the block, above which keys are hidden; None where none is."""
    below: int | None
    """The diagonal below which keys are hidden."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, limits: Limits, threshold: float | Tensor, mask: Tensor | None, wide: bool = False
) -> Tensor:
    """The context [B, H, T, D] of `reference.attend`, in memory as [B, T, H, D].

    A float `mask` has no gradient here, and goes with the weights in `ADDED_MASKS`.
    """
    if wide:
        q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    theta: Tensor | None = None
    if isinstance(threshold, Tensor):
        theta = threshold
    elif threshold:
        theta = q.new_full((q.size(1),), threshold, dtype=torch.promote_types(q.dtype, torch.float32))
    if mask is not None and mask.is_inference() and torch.is_grad_enabled():
        mask = mask.clone()  # autograd saves no tensor of inference mode, and masks are often kept
    return Attention.apply(q, k, v, theta, mask, limits)


def serves(q: Tensor, mask: Tensor | None) -> bool:
    """Whether a call on the path "blocks" may be computed here: nothing looks at its operations or changes them."""
    differentiable_mask = mask is not None and mask.requires_grad and torch.is_grad_enabled()
    return is_plain_eager(q) and not differentiable_mask and not torch.is_autocast_enabled("cpu")


def blocks_of(q: Tensor, k: Tensor, limits: Limits) -> Iterator[Block]:
    """All blocks of a call in which some query sees some key."""
    (B, H, T, _), (_, Hk, S, _) = q.shape, k.shape
    group, room = H // Hk, BYTES_OF_A_THREAD * torch.get_num_threads() // q.element_size()
    together = max(1, min(Hk, room // max(ROW_BYTES // q.element_size() * S * group, 1)))
    rows = max(16, room // max(together * S * group, 1))
    number = 0
    for b in range(B):
        first = 0 if limits.key_starts is None else limits.key_starts[b]
        last = S if limits.key_lengths is None else limits.key_lengths[b]
        for h in range(0, Hk, together):
            for t in range(0, T, rows):
                n = min(rows, T - t)
                position = t + S - T  # of the first query among the keys
                begin = first if limits.left is None else max(first, position - limits.left)
                end = last if limits.right is None else min(last, position + n + limits.right)
                if begin >= end:
                    continue
                above = None if limits.right is None else position + limits.right - begin
                below = None if limits.left is None else position - limits.left - begin
                if above is not None and above >= end - begin - 1:
                    above = None
                if below is not None and below <= 1 - n:
                    below = None
                yield Block(number, b, slice(h, h + together), slice(t, t + n), slice(begin, end), above, below)
                number += 1


def rows_of(x: Tensor, block: Block, group: int) -> Tensor:
    """The rows [Hk, H/Hk · rows, D] of a block in x [B, H, T, D]; a copy where heads share keys."""
    part = x[block.sentence, heads_of(block, group), block.rows]
    return part if group == 1 else part.unflatten(0, (-1, group)).flatten(1, 2)


def keys_of(x: Tensor, block: Block) -> Tensor:
    """The keys [Hk, keys, D] of a block in x [B, Hk, S, D]."""
    return x[block.sentence, block.heads, block.keys]


def heads_of(block: Block, group: int) -> slice:
    """The query heads of a block."""
    return slice(block.heads.start * group, block.heads.stop * group)


class Scores:
    """Computes the scores of one block after the other in the same memory."""

    def __init__(self, q: Tensor, k: Tensor, theta: Tensor | None, mask: Tensor | None, limits: Limits) -> None:
        self.q, self.k, self.mask, self.limits = q * limits.scale, k, mask, limits
        self.theta = theta
        self.group = q.size(1) // k.size(1)
        self.memory = [q.new_empty(0), q.new_empty(0)]

    def of(self, block: Block) -> Tensor:
        """q kᵀ · scale + bias - θ of a block, [Hk, H/Hk · rows, keys]; what is hidden may be anything."""
        q = rows_of(self.q, block, self.group)
        scores = self.product(0, q, keys_of(self.k, block))
        by_head = self.by_head(scores, block)
        if self.theta is not None:
            by_head -= self.theta[heads_of(block, self.group), None, None].view(len(q), self.group, 1, 1)
        if self.mask is not None and self.mask.dtype != torch.bool:
            by_head += self.mask_of(block)
        return scores

    def product(self, place: int, rows: Tensor, keys: Tensor) -> Tensor:
        """rows · keysᵀ [Hk, H/Hk · rows, keys] in memory of our own, which has two places."""
        size = len(rows), rows.size(1), keys.size(1)
        count = size[0] * size[1] * size[2]
        if self.memory[place].numel() < count:
            self.memory[place] = rows.new_empty(count)
        return torch.bmm(rows, keys.mT, out=self.memory[place][:count].view(size))

    def by_head(self, scores: Tensor, block: Block) -> Tensor:
        """Scores as [Hk, H/Hk, rows, keys]."""
        return scores.unflatten(1, (self.group, -1))

    def mask_of(self, block: Block) -> Tensor:
        """The mask of a block, which broadcasts to [Hk, H/Hk, rows, keys]."""
        assert self.mask is not None
        mask = self.mask if self.mask.dim() == 4 else self.mask[None, None]
        mask = mask[block.sentence if mask.size(0) > 1 else 0]
        if mask.size(0) > 1:
            mask = mask[heads_of(block, self.group)]
        mask = mask if mask.size(1) == 1 else mask[:, block.rows]
        mask = mask if mask.size(2) == 1 else mask[:, :, block.keys]
        return mask[None] if len(mask) == 1 else mask.unflatten(0, (-1, self.group))

    def hide(self, x: Tensor, block: Block) -> Tensor:
        """Weights or gradients of scores, with zeros where a query may not see a key, in place."""
        parts = self.by_head(x, block)
        if block.above is not None:
            parts[..., max(block.above, 0) :].tril_(block.above - max(block.above, 0))
        if block.below is not None:
            columns = max(block.below + parts.size(2), 0)
            parts[..., :columns].triu_(block.below)
        if self.mask is not None and self.mask.dtype == torch.bool:
            parts.masked_fill_(~self.mask_of(block), 0.0)
        return x

    def kept(self, block: Block, like: Tensor) -> Tensor | None:
        """What dropout multiplies the weights of a block by, 0 or 1 / (1 − p); None without dropout.

        The same for a block each time: the backward pass draws it again.
        """
        rate = self.limits.dropout
        if not rate:
            return None
        generator = torch.Generator()
        generator.manual_seed(self.limits.seed + block.number)
        return torch.empty_like(like).bernoulli_(1.0 - rate, generator=generator).mul_(1.0 / (1.0 - rate))


class Attention(torch.autograd.Function):
    """The context block by block, and its gradients, for which the weights are computed again."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, theta: Tensor | None, mask: Tensor | None, limits: Limits
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, theta, mask)
        ctx.limits, ctx.blocks = limits, list(blocks_of(q, k, limits))
        scores = Scores(q, k, theta, mask, limits)
        out = heads_last(q, v.size(-1))
        for block in ctx.blocks:
            weights = scores.hide(rectified_(scores.of(block), limits.weights), block)
            put(out, block, scores.group, times(weights, scores.kept(block, weights)), keys_of(v, block))
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        batched = torch._C._functorch.is_legacy_batchedtensor(d_out)
        by_blocks = is_plain_eager(d_out) and not batched and not torch.is_grad_enabled()
        return *(gradients_by_blocks if by_blocks else gradients_by_reference)(ctx, d_out), None, None


def gradients_by_blocks(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    """dQ, dK, dV and dθ: dV = wᵀ dO, dS = act'(S) · dO vᵀ, dQ = dS k · scale, dK = dSᵀ q · scale, dθ = −Σ dS."""
    q, k, v, theta, mask = ctx.saved_tensors
    limits = ctx.limits
    scores = Scores(q, k, theta, mask, limits)
    group, wide = scores.group, torch.promote_types(q.dtype, torch.float32)
    dq = heads_last(q, q.size(-1))
    # sums over blocks, in at least float32
    dk, dv = (torch.zeros_like(x, dtype=wide, memory_format=torch.contiguous_format) for x in (k, v))
    d_theta = q.new_zeros(q.size(1), dtype=wide)
    for block in ctx.blocks:
        queries, keys, values = rows_of(scores.q, block, group), keys_of(k, block), keys_of(v, block)
        d_rows = rows_of(d_out, block, group)
        weights, slope = weights_and_slope(scores.of(block), limits.weights)
        kept = scores.kept(block, weights)
        # of relu, what is dropped here has no slope below, and needs none
        add(dv, block, times(scores.hide(weights, block), kept).mT, d_rows)
        d_scores = slope(times(scores.product(1, d_rows, values), kept))
        if limits.weights != "relu":  # whose slope is zero where its weight is
            scores.hide(d_scores, block)
        put(dq, block, group, d_scores, keys)
        add(dk, block, d_scores.mT, queries)
        if theta is not None:
            d_theta[heads_of(block, group)] -= scores.by_head(d_scores, block).sum((-1, -2), dtype=wide).flatten()
    found = dq.mul_(limits.scale), dk.to(k.dtype), dv.to(v.dtype)
    return *found, None if theta is None else d_theta.to(theta.dtype)


def gradients_by_reference(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    """The same gradients through the reference, which can be differentiated again and batched."""
    q, k, v, theta, mask = ctx.saved_tensors
    limits = ctx.limits
    lengths, starts = (
        None if x is None else torch.tensor(x, device=q.device) for x in (limits.key_lengths, limits.key_starts)
    )
    window = limits.left, limits.right
    allowed, bias = combine_masks(mask, lengths, False, q.size(2), k.size(2), q.device, starts, window)
    inputs = [x for x, wanted in zip((q, k, v, theta), ctx.needs_input_grad, strict=False) if wanted]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        given = limits.weights, limits.scale, allowed, bias, 0.0 if theta is None else theta
        weights = reference.attention_weights(q, k, *given)
        if limits.dropout:
            weights = weights * all_kept(ctx, weights)
        out = reference.grouped_product(weights, v)
    found = iter(torch.autograd.grad(out, inputs, d_out, create_graph=again))
    return tuple(next(found) if wanted else None for wanted in ctx.needs_input_grad[:4])


def all_kept(ctx: Any, weights: Tensor) -> Tensor:
    """What dropout multiplies all weights [B, H, T, S] by, put together from the blocks."""
    q, k, _, theta, mask = ctx.saved_tensors
    scores = Scores(q, k, theta, mask, ctx.limits)
    everything = torch.zeros_like(weights, requires_grad=False)
    for block in ctx.blocks:
        size = len(keys_of(k, block)), scores.group * (block.rows.stop - block.rows.start)
        kept = scores.kept(block, q.new_empty(*size, block.keys.stop - block.keys.start))
        if kept is not None:
            place = everything[block.sentence, heads_of(block, scores.group), block.rows, block.keys]
            place.copy_(scores.by_head(kept, block).flatten(0, 1))
    return everything


def heads_last(q: Tensor, size: int) -> Tensor:
    """Zeros [B, H, T, size] that lie in memory as [B, T, H, size], so that merging the heads is a view."""
    B, H, T, _ = q.shape
    return q.new_zeros(B, T, H, size).transpose(1, 2)


def put(out: Tensor, block: Block, group: int, a: Tensor, b: Tensor) -> None:
    """Write the product of a [Hk, H/Hk · rows, keys] and b [Hk, keys, D] where the block's queries lie in `out`."""
    place = out[block.sentence, heads_of(block, group), block.rows]
    if group == 1:
        torch.bmm(a, b, out=place)
    else:
        place.copy_(torch.bmm(a, b).unflatten(1, (group, -1)).flatten(0, 1))


def add(total: Tensor, block: Block, a: Tensor, b: Tensor) -> None:
    """Add the product of a [Hk, keys, rows] and b [Hk, rows, D] where the block's keys lie in `total`."""
    place = keys_of(total, block)
    if place.dtype == a.dtype:
        torch.baddbmm(place, a, b, out=place)
    else:
        place += torch.bmm(a, b)  # which, unlike @, is fast for a batch of one


def times(x: Tensor, kept: Tensor | None) -> Tensor:
    """Weights or their gradients times what dropout keeps of them, in place."""
    return x if kept is None else x.mul_(kept)


def rectified_(scores: Tensor, weights: str) -> Tensor:
    """The weights of scores, in their place where that is possible."""
    match weights:
        case "relu":
            return scores.relu_()
        case "relu2":
            return scores.relu_().square_()
        case "gelu":
            return F.gelu(scores)
    return F.leaky_relu_(scores)


def weights_and_slope(scores: Tensor, weights: str) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The weights of scores, and a function from their gradient, which it may overwrite, to that of the scores."""
    aten: Any = torch.ops.aten
    match weights:
        case "relu":
            weight = scores.relu_()
            return weight, lambda d_weight: aten.threshold_backward.grad_input(d_weight, weight, 0, grad_input=d_weight)
        case "relu2":
            root = scores.relu_()
            return root.square(), lambda d_weight: d_weight.mul_(root).mul_(2)
        case "gelu":
            return F.gelu(scores), lambda d_weight: aten.gelu_backward(d_weight, scores)
    return F.leaky_relu(scores), lambda d_weight: aten.leaky_relu_backward(d_weight, scores, 0.01, False)
