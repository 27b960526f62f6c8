"""Sparsity on demand: a differentiable penalty that drives the share of zero weights to a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rela.attention import reference
from rela.attention.checks import is_number, shape
from rela.attention.kinds import ZERO_BELOW, Kind


def sparsity_rate(weights: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The share of weights exactly zero among those a query may look at, for each head; weights are [B, H, T, S]."""
    check_four("weights", weights)
    check_allowed(allowed, weights)
    if allowed is None:
        return (weights == 0).float().mean((0, 2, 3))
    counted = allowed.expand_as(weights)
    return ((weights == 0) & counted).sum((0, 2, 3)) / counted.sum((0, 2, 3)).clamp(min=1)


def null_rate(weights: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The share of queries with all weights zero, for each head; queries that may look nowhere do not count."""
    check_four("weights", weights)
    check_allowed(allowed, weights)
    if allowed is None:
        return (weights == 0).all(-1).float().mean((0, 2))
    null = ((weights == 0) | ~allowed).all(-1)
    counted = allowed.expand_as(weights).any(-1)
    return (null & counted).sum((0, 2)) / counted.sum((0, 2)).clamp(min=1)


def sparsity_penalty(scores: Tensor, target: float, allowed: Tensor | None = None) -> Tensor:
    """Mean over heads of (sparsity rate - target)², for scores [B, H, T, S] from which θ is already subtracted.

    A weight is zero where its score is not positive, and that step has no useful slope. Forward counts exactly;
    backward takes the step for σ(score / τ), a logistic curve as wide as the head's scores lie from the threshold
    (τ is the root of their mean square, held constant). That is the slope of the sparsity one would measure were
    each score blurred by logistic noise of that width: it has the right sign everywhere, is largest for scores
    near the threshold, and vanishes neither when a head's scores are scaled nor when they all lie on one side.
    """
    check_four("scores", scores)
    if not is_number(target) or not 0.0 <= target <= 1.0:
        raise ValueError(f"target sparsity is {target!r}; wanted a rate in [0, 1]")
    check_allowed(allowed, scores)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    counted = torch.ones_like(scores) if allowed is None else allowed.expand_as(scores).to(scores.dtype)
    count = counted.sum((0, 2, 3)).clamp(min=1.0)
    with torch.no_grad():
        width = ((scores.square() * counted).sum((0, 2, 3)) / count).sqrt().clamp(min=1e-6)
    smooth = torch.sigmoid(scores / width[:, None, None])
    step = (scores > 0).to(scores.dtype)
    density = ((step - smooth).detach() + smooth) * counted
    return (1.0 - density.sum((0, 2, 3)) / count - target).square().mean()


def threshold_penalty(
    q: Tensor, k: Tensor, scale: float, allowed: Tensor | None, bias: Tensor | None, threshold: Tensor, target: float
) -> Tensor:
    """The sparsity penalty of q over k for a learned threshold [H]; its gradient moves the threshold and nothing else.

    It has that gradient under `no_grad` too, which is where reentrant checkpointing runs a forward.
    """
    with torch.no_grad():
        scores = reference.attention_scores(q, k, scale, bias).float()
    with torch.enable_grad():
        return sparsity_penalty(scores - threshold[:, None, None].float(), target, allowed)


def keep_penalty(attention: Any, penalty: Tensor) -> None:
    """Store the penalty of one call of an attention: the last call's, or the sum over those of an `open_forward`."""
    added = attention.open_forwards and attention.penalty is not None
    attention.penalty = attention.penalty + penalty if added else penalty


def open_forward(module: nn.Module, inputs: Any) -> None:
    """Before a forward of a module: the penalties of an earlier one go, and those of this one will add up.

    For some models call one attention several times in a forward (ALBERT). Modules within each other may all have
    this hook: the outermost counts.
    """
    for attention in with_target(module):
        if not attention.open_forwards:
            attention.penalty = None
        attention.open_forwards += 1


def close_forward(module: nn.Module, inputs: Any, output: Any) -> None:
    """After it: what calls an attention now (checkpointing, within backward) is no part of it."""
    for attention in with_target(module):
        attention.open_forwards = max(0, attention.open_forwards - 1)


def sum_penalties(modules: Iterable[nn.Module]) -> Callable[[], None]:
    """Let the penalties of one forward of each of these modules add up; the function returned ends that."""
    handles = []
    for module in modules:
        handles.append(module.register_forward_pre_hook(open_forward))
        handles.append(module.register_forward_hook(close_forward, always_call=True))

    def end() -> None:
        for handle in handles:
            handle.remove()

    return end


def with_target(module: nn.Module) -> list[Any]:
    """The attentions inside a module that have a `target_sparsity`, each once.

    What torch.compile or FSDP wraps around an attention answers for it, but has no such attribute of its own.
    """
    return [part for part in module.modules() if part.__dict__.get("target_sparsity") is not None]


def check_target(target: float | None, threshold: float | str, kind: Kind) -> None:
    """What a module is given as its `target_sparsity`: None, or a rate where there is a threshold to move."""
    if target is None:
        return
    if not is_number(target) or not 0.0 <= target <= 1.0:
        raise ValueError(f"target_sparsity is {target!r}; wanted a rate in [0, 1]")
    if threshold != "learned" or kind.weights not in ZERO_BELOW:
        weights = " or ".join(ZERO_BELOW)
        raise ValueError(f'target_sparsity is set; wanted threshold="learned" and {weights} weights with it')


def collect_sparsity_penalty(module: nn.Module) -> Tensor | float:
    """The sum of the penalties that the attentions inside `module` left behind in their last training forward.

    Of an attention that a forward calls several times (ALBERT), each call counts in a model given to
    `rela.replace_attention`, and the last call elsewhere.

    Zero where none has a `target_sparsity`. Add it, times a factor, to the loss.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; wanted a torch.nn.Module")
    penalties = [part.penalty for part in with_target(module) if isinstance(part.penalty, Tensor)]
    # One device after another: the parts of a model may lie on several.
    return sum((penalty.to(penalties[0].device) for penalty in penalties[1:]), penalties[0]) if penalties else 0.0


def check_four(name: str, tensor: Tensor) -> None:
    """Refuse what is no tensor [B, H, T, S]."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} are a {type(tensor).__name__}; wanted a tensor [B, H, T, S]")
    if tensor.dim() != 4:
        raise ValueError(f"{name} have shape {shape(tensor)}; wanted [B, H, T, S]")


def check_allowed(allowed: Tensor | None, of: Tensor) -> None:
    """Refuse a mask for weights or scores `of` that is not boolean: of a number, `~` would be another number."""
    if allowed is None:
        return
    if not isinstance(allowed, Tensor):
        raise TypeError(f"allowed is a {type(allowed).__name__}; wanted a tensor")
    if allowed.dtype != torch.bool:
        raise TypeError(f"allowed is {allowed.dtype}; wanted bool, True where a query may look")
    sizes = zip(allowed.shape[::-1], of.shape[::-1], strict=False)
    if allowed.dim() > of.dim() or any(came not in (1, wanted) for came, wanted in sizes):
        raise ValueError(f"allowed has shape {shape(allowed)}; wanted one that broadcasts to {shape(of)}")
