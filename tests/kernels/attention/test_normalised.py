"""Attention and its norm as one function give what they give apart: in eager mode, as an operator, compiled."""

import gc
import weakref

import pytest
import torch

pytest.importorskip("triton")

from rela.attention import norms
from rela.kernels.attention import normalised
from rela.kernels.attention.functional import repeatable_problem
from rela.kernels.attention.normalised import Norm, by_operator, repeated
from tests.kernels.attention.attention_cases import SCALE, qkv
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw, reference, seen_by

EPS = 1e-6
PLAIN = {"scale": SCALE, "activation": "relu", "causal": False, "window": (None, None)}
LIMITS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (9, 3)},
    "lengths": {"key_lengths": torch.tensor([24, 5])},
    "starts": {"key_starts": torch.tensor([3, 0]), "causal": True},
}


def parameters(width: int, gated: bool = True, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [draw(width, dtype=dtype, seed=seed) for seed in (11, 12)[: 1 + gated]]


def eager(q, k, v, gain, gate=None, threshold=None, merged=True, **options):
    """As a plan calls it."""
    lengths, starts = (options.pop(name, None) for name in ("key_lengths", "key_starts"))
    mask, seed = options.pop("mask", None), options.pop("seed", None)
    tensors = q, k, v, threshold, mask, lengths, starts
    problem_of = repeatable_problem(*tensors, **{**PLAIN, **options})
    gradient = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    return repeated(problem_of, gradient, decoding=False)((*tensors, seed), (gain, gate, EPS), merged)


def operator(q, k, v, gain, gate=None, threshold=None, **options):
    """As a compiler sees it."""
    given = {"mask": None, "key_lengths": None, "key_starts": None, "dropout": 0.0, "seed": 0, **PLAIN, **options}
    return by_operator(q, k, v, Norm(gain, gate, EPS), threshold=threshold, **given).flatten(2)


def equation(q, k, v, gain, gate=None, **options):
    context = reference(q, k, v, scale=SCALE, seen=seen_by(q, k, **options))
    return norms.rms_norm(context.transpose(1, 2).flatten(2), gain, gate, EPS)


def on_device(options: dict) -> dict:
    return {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("way", [eager, operator])
def test_it_is_the_equation(way, limits: str, gated: bool):
    inputs = [*qkv(T=20, S=24, H=4, Hk=2), *parameters(4 * 24, gated)]
    options = on_device(LIMITS[limits])
    assert_as_exact_as(lambda *x: way(*x, **options), lambda *x: equation(*x, **options), *inputs)


@pytest.mark.parametrize("gated", [False, True])
def test_both_ways_give_the_same_with_a_threshold_a_float_mask_and_dropout(gated: bool):
    inputs = [*qkv(T=20, S=24, H=4, Hk=2), *parameters(4 * 24, gated)]
    others = {"threshold": draw(4, seed=5), "mask": draw(1, 4, 20, 24, seed=6)}
    seed, outcomes = torch.tensor(3, device=DEVICE), []
    for way in (eager, operator):
        leaves = [x.clone().requires_grad_() for x in (*inputs, *others.values())]
        given = dict(zip(others, leaves[-2:], strict=True))
        out = way(*leaves[:-2], **given, dropout=0.25, seed=seed)
        outcomes.append((out, *torch.autograd.grad(out, leaves, draw(*out.shape, seed=7))))
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other)


def test_heads_are_merged_or_apart():
    inputs = [x.requires_grad_() for x in (*qkv(T=20, S=24), *parameters(2 * 24))]
    merged, apart = eager(*inputs), eager(*inputs, merged=False)
    assert merged.shape == (2, 20, 48)
    assert apart.shape == (2, 20, 2, 24)
    assert torch.equal(merged, apart.flatten(2))
    slopes = draw(2, 20, 48, seed=7)
    wanted = torch.autograd.grad(merged, inputs, slopes)
    for one, other in zip(torch.autograd.grad(apart, inputs, slopes.view_as(apart)), wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_that_are_not_contiguous_or_begin_anywhere():
    inputs = [x.requires_grad_() for x in (*qkv(T=20, S=24), *parameters(2 * 24))]
    wide = draw(2 * 20 * 48 + 1, seed=7)
    out = eager(*inputs)
    wanted = torch.autograd.grad(out, inputs, wide[1:].view_as(out).clone(), retain_graph=True)
    turned = wide[1:].view_as(out).mT.contiguous().mT
    for slopes in (wide[1:].view_as(out), turned):
        for one, other in zip(torch.autograd.grad(out, inputs, slopes, retain_graph=True), wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_gradients_of_the_norm_alone():
    q, k, v, gain, gate = [x.requires_grad_() for x in (*qkv(T=20, S=24), *parameters(2 * 24))]
    out = eager(q, k, v, gain, gate)
    slopes = draw(*out.shape, seed=7)
    all_of_them = torch.autograd.grad(out, [q, k, v, gain, gate], slopes, retain_graph=True)
    for one, other in zip(torch.autograd.grad(out, [gain, gate], slopes), all_of_them[3:], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(
    ("T", "D"), [(20, 24), pytest.param(150, 64, marks=pytest.mark.gpu), pytest.param(131, 192, marks=pytest.mark.gpu)]
)
def test_joined_launches_give_what_two_norms_launches_and_two_for_dq_give(T, D, limits, gated, monkeypatch):
    """In half precision dQ's sums are cleared by the norm's launch, and rounded by the one that adds up its sums."""
    kind = torch.float16
    inputs = [*qkv(T=T, S=T + 4, H=4, Hk=2, D=D, dtype=kind), *parameters(4 * D, gated, dtype=kind)]
    theta, bias = draw(4, seed=5), draw(1, 4, T, T + 4, dtype=kind, seed=6)
    outcomes = []
    for joined in (True, False):
        if not joined:
            monkeypatch.setattr(normalised, "planned_joined", lambda *given: None)
        leaves = [x.clone().requires_grad_() for x in (*inputs, theta, bias)]
        *given, threshold, mask = leaves
        out = eager(*given, threshold=threshold, mask=mask, **on_device(LIMITS[limits]))
        outcomes.append(torch.autograd.grad(out, leaves, draw(*out.shape, dtype=kind, seed=7)))
    for one, other in zip(*outcomes, strict=True):
        assert one.isfinite().all()
        if DEVICE == "cuda":  # the order of additions to dQ is not fixed
            torch.testing.assert_close(one, other)
        else:
            assert torch.equal(one, other)


def test_parameters_in_float32_beside_half_precision():
    q, k, v = qkv(T=20, S=24, dtype=torch.float16)
    leaves = [x.requires_grad_() for x in (q, k, v, *parameters(2 * 24))]
    out = eager(*leaves)
    assert out.dtype == torch.float16
    kinds = [x.dtype for x in torch.autograd.grad(out, leaves, draw(*out.shape, dtype=torch.float16, seed=7))]
    assert kinds == [torch.float16] * 3 + [torch.float32] * 2


def test_second_derivatives_are_an_error_and_not_zero():
    inputs = [x.requires_grad_() for x in (*qkv(T=5, S=5), *parameters(2 * 24))]
    (dq,) = torch.autograd.grad(eager(*inputs).square().sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_no_tensor_is_kept():
    """A plan outlives its calls; their tensors must not."""
    inputs = [x.requires_grad_() for x in (*qkv(T=5, S=5), *parameters(2 * 24))]
    problem_of = repeatable_problem(*inputs[:3], None, None, None, None, **PLAIN)
    kept = [weakref.ref(x) for x in inputs]
    attended = repeated(problem_of, gradient=True, decoding=False)
    out = attended((*inputs[:3], None, None, None, None, None), (*inputs[3:], EPS), True)
    out.sum().backward()
    del inputs, out
    gc.collect()
    assert attended is not None
    assert all(reference() is None for reference in kept)


@pytest.mark.parametrize("T", [0, 3])
def test_no_rows(T: int):
    inputs = [x.requires_grad_() for x in (*qkv(B=0 if T else 2, T=T, S=24), *parameters(2 * 24))]
    out = eager(*inputs)
    assert out.numel() == 0
    assert all(not x.any() for x in torch.autograd.grad(out.sum(), inputs))


def test_the_operator_keeps_its_contract(memory_as_it_is):
    q, k, v, gain, gate = (x.requires_grad_() for x in (*qkv(T=7, S=9), *parameters(2 * 24)))
    options = None, SCALE, "relu", True, 0.0, None, None, None, EPS, True
    for given in (gate, None):
        tensors = q, k, v, None, None, None, gain, given
        torch.library.opcheck(torch.ops.rela.normalised_attention.default, (*tensors, *options))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.gpu)])
def test_compiled_it_is_one_graph(backend: str, memory_as_it_is):
    inputs = [x.requires_grad_() for x in (*qkv(T=20, S=24), *parameters(2 * 24))]

    def call(*x: torch.Tensor) -> torch.Tensor:
        return operator(*x, causal=True) * 2.0

    slopes = draw(2, 20, 48, seed=7)
    outcomes = []
    for function in (call, torch.compile(call, fullgraph=True, backend=backend)):
        out = function(*inputs)
        outcomes.append((out, *torch.autograd.grad(out, inputs, slopes)))
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other)
