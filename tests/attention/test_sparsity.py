"""Sparsity on demand: the penalty counts exactly, slopes the right way, and a learned threshold reaches its target."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import rela
from tests.attention.attention_cases import attention, normal

C, H = 12, 3


@settings(deadline=None, max_examples=20)
@given(target=st.floats(0, 1), seed=st.integers(0, 99), masked=st.booleans())
def test_the_value_is_the_exact_squared_miss(target: float, seed: int, masked: bool):
    scores = normal(2, 3, 4, 5, seed=seed)
    allowed = normal(2, 1, 4, 5, seed=seed + 1) > 0 if masked else torch.ones(2, 1, 4, 5, dtype=torch.bool)
    misses = []
    for h in range(3):
        seen = [scores[b, h, t, s] for b in range(2) for t in range(4) for s in range(5) if allowed[b, 0, t, s]]
        zero = sum(score.item() <= 0 for score in seen) / len(seen)
        misses.append((zero - target) ** 2)
    penalty = rela.sparsity_penalty(scores, target, allowed if masked else None)
    assert penalty.item() == pytest.approx(sum(misses) / 3, abs=1e-12)


@pytest.mark.parametrize("target", [-0.001, 1.001, float("nan"), "0.5", True])
def test_a_target_that_is_no_rate_is_refused(target: object):
    with pytest.raises(ValueError, match=r"target sparsity is .*; wanted a rate in \[0, 1\]"):
        rela.sparsity_penalty(normal(1, 2, 3, 4), target)


@pytest.mark.parametrize("target", [0.0, 1.0])
@pytest.mark.parametrize("shift", [-30.0, 0.0, 30.0])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_the_slope_has_the_right_sign_and_never_vanishes(target: float, shift: float, size: float):
    """Too dense: scores go down. Too sparse: up. Also where all scores lie far on one side, at any size of scores."""
    scores = (size * (normal(1, 2, 4, 5) + shift)).requires_grad_()
    penalty = rela.sparsity_penalty(scores, target)
    (slope,) = torch.autograd.grad(penalty, scores)
    if penalty == 0:
        assert not slope.any()
        return
    assert (slope * (1 if target == 1.0 else -1) > 0).all()
    # Relative to the scores' own size: moving all of them by it changes the penalty noticeably.
    assert (slope.abs().sum() * scores.abs().mean()).item() > 0.05


def test_forbidden_scores_get_no_slope():
    scores = normal(1, 1, 3, 4).requires_grad_()
    allowed = torch.tensor([True, True, False, True])
    rela.sparsity_penalty(scores, 0.9, allowed).backward()
    assert not scores.grad[..., 2].any()
    assert scores.grad[..., [0, 1, 3]].all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_counts_exactly_too(dtype: torch.dtype):
    """4096 scores: bfloat16 itself could not count them."""
    scores = normal(1, 1, 64, 64).to(dtype)
    rate = (scores <= 0).double().mean().item()
    assert rela.sparsity_penalty(scores, 0.0).item() == pytest.approx(rate**2, rel=1e-6)


@pytest.mark.parametrize("target", [0.25, 0.9])
@pytest.mark.parametrize("kind", ["rela-g", "relu2-g"])
def test_a_learned_threshold_reaches_the_target(kind: str, target: float):
    """Plain SGD on the penalty alone; only the thresholds move."""
    torch.manual_seed(0)
    module = rela.MultiheadAttention(C, H, batch_first=True, kind=kind, threshold="learned", target_sparsity=target)
    x = normal(4, 16, C, dtype=torch.float32)
    optimiser = torch.optim.SGD(module.parameters(), lr=2.0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for _ in range(200):
        module(x, x, x, need_weights=False)
        optimiser.zero_grad()
        rela.collect_sparsity_penalty(module).backward()
        optimiser.step()
    weights = module(x, x, x, average_attn_weights=False)[1]
    assert rela.sparsity_rate(weights).tolist() == pytest.approx([target] * H, abs=0.02)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]) == (name != "threshold"), name


def test_a_far_threshold_comes_back():
    """Every weight is zero at θ = 50; the slope still leads home."""
    module = rela.MultiheadAttention(C, H, batch_first=True, threshold="learned", target_sparsity=0.5)
    torch.nn.init.constant_(module.threshold, 50.0)
    x = normal(4, 16, C, dtype=torch.float32)
    optimiser = torch.optim.Adam([module.threshold], lr=0.5)
    for _ in range(300):
        module(x, x, x, need_weights=False)
        optimiser.zero_grad()
        rela.collect_sparsity_penalty(module).backward()
        optimiser.step()
    weights = module(x, x, x, average_attn_weights=False)[1]
    assert rela.sparsity_rate(weights).tolist() == pytest.approx([0.5] * H, abs=0.1)


def sparse_module(**options) -> rela.MultiheadAttention:
    return attention("rela-g", C, H, threshold="learned", target_sparsity=0.7, **options)


def test_penalty_and_weights_speak_of_the_same_zeros():
    """Masks included: what the module leaves behind is the miss of the weights it gives back."""
    module = sparse_module()
    x, y = normal(2, 5, C), normal(2, 7, C, seed=1)
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    weights = module(x, y, y, key_padding_mask=hidden, average_attn_weights=False)[1]
    rate = rela.sparsity_rate(weights, ~hidden[:, None, None])
    assert_close(module.penalty.float(), (rate - 0.7).square().mean())


@pytest.mark.parametrize("causal", [False, True])
def test_packed_and_padded_leave_the_same_penalty(causal: bool):
    module = sparse_module()
    x = normal(9, C)
    cu = torch.tensor([0, 4, 7], dtype=torch.int32)  # two tokens of filler
    module.forward_packed(x, x, cu, cu, 4, 4, causal)
    packed = module.penalty
    counted, zeros = torch.zeros(H), torch.zeros(H)
    for begin, end in ((0, 4), (4, 7)):
        one = x[None, begin:end]
        weights = module(one, one, one, is_causal=causal, average_attn_weights=False)[1]
        seen = torch.ones(end - begin, end - begin, dtype=torch.bool)
        seen = seen.tril() if causal else seen
        counted += seen.sum()
        zeros += ((weights == 0) & seen).sum((0, 2, 3))
    assert_close(packed.float(), (zeros / counted - 0.7).square().mean())


def test_penalties_of_a_model_add_up_and_eval_leaves_none():
    model = torch.nn.ModuleList([sparse_module(), sparse_module(), attention("softmax", C, H)])
    assert rela.collect_sparsity_penalty(model) == 0.0
    x = normal(2, 5, C)
    for module in model.eval():
        module(x, x, x)
    assert rela.collect_sparsity_penalty(model) == 0.0
    for module in model.train():
        module(x, x, x)
    assert_close(rela.collect_sparsity_penalty(model), model[0].penalty + model[1].penalty)
    assert rela.collect_sparsity_penalty(model).requires_grad


def test_a_penalty_of_another_s_module_is_left_alone():
    class Other(torch.nn.Module):
        penalty = 0.6

    assert rela.collect_sparsity_penalty(Other()) == 0.0


def test_the_penalty_reaches_the_threshold_and_nothing_else():
    module = sparse_module()
    x = normal(2, 5, C).requires_grad_()
    module(x, x, x)
    module.penalty.backward()
    assert module.threshold.grad.any()
    assert x.grad is None
    assert [name for name, p in module.named_parameters() if p.grad is not None] == ["threshold"]


def test_a_compiled_attention_counts_once():
    model = torch.nn.ModuleDict({"a": sparse_module(), "b": sparse_module()})
    x = normal(2, 5, C)
    for module in model.values():
        module(x, x, x)
    wanted = rela.collect_sparsity_penalty(model).detach()
    model["a"] = torch.compile(model["a"])  # wraps it; never called, so nothing is compiled here
    assert_close(rela.collect_sparsity_penalty(model).detach(), wanted)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_leaves_the_gradient_of_the_penalty(reentrant: bool):
    module = sparse_module()
    x = normal(2, 5, C).requires_grad_()
    module(x, x, x)
    (wanted,) = torch.autograd.grad(rela.collect_sparsity_penalty(module), module.threshold)
    checkpoint(lambda y: module(y, y, y)[0], x, use_reentrant=reentrant)
    rela.collect_sparsity_penalty(module).backward()
    assert_close(module.threshold.grad, wanted)


@pytest.mark.parametrize("rate", [rela.sparsity_rate, rela.null_rate])
def test_rates_take_boolean_masks_alone(rate: Callable[..., torch.Tensor]):
    """`~1` is -2, which counted every query that looks at something as one that does not."""
    weights = torch.tensor([[[[0.0, 1.0], [1.0, 0.0]]]])
    allowed = torch.ones(2, 2, dtype=torch.bool)
    assert rate(weights, allowed).item() == rate(weights).item()
    with pytest.raises(TypeError, match=r"allowed is torch.int64; wanted bool, True where a query may look"):
        rate(weights, allowed.long())
    with pytest.raises(TypeError, match="allowed is a list; wanted a tensor"):
        rate(weights, allowed.tolist())
    with pytest.raises(ValueError, match=r"allowed has shape \[3, 2\]; wanted one that broadcasts to"):
        rate(weights, torch.ones(3, 2, dtype=torch.bool))


def test_a_threshold_that_is_no_parameter_has_its_penalty():
    """Under `functional_call` it is a tensor, and parametrised it is computed from another."""
    module, x = attention("rela-g", threshold="learned", target_sparsity=0.5), normal(2, 5, 12)
    module(x, x, x)
    (wanted,) = torch.autograd.grad(rela.collect_sparsity_penalty(module), module.threshold)

    def penalty(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        torch.func.functional_call(module, parameters, (x, x, x))
        return rela.collect_sparsity_penalty(module)

    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    assert_close(torch.func.grad(penalty)(parameters)["threshold"], wanted)
    torch.nn.utils.parametrize.register_parametrization(module, "threshold", torch.nn.Identity())
    assert "threshold=learned" in repr(module)
    module(x, x, x)
    rela.collect_sparsity_penalty(module).backward()
    assert_close(module.parametrizations.threshold.original.grad, wanted)
