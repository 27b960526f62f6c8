"""The functions take views as they are, hide what lies outside an interval, and are what the operators are."""

import gc
import weakref
from typing import ClassVar

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton")
from rela.kernels.attention.functional import relu_attention, relu_attention_decode, repeatable
from tests.kernels.attention.attention_cases import SCALE, assert_right, qkv
from tests.kernels.exactness import DEVICE, draw


def test_views_of_one_projection_are_read_in_place():
    projected = draw(2, 33, 3, 4, 20, seed=1)  # [B, T, 3, H, D]
    q, k, v = (x.transpose(1, 2) for x in projected.unbind(2))
    out = relu_attention(q, k, v, scale=SCALE, causal=True)
    apart = relu_attention(*(x.contiguous() for x in (q, k, v)), scale=SCALE, causal=True)
    assert torch.equal(out, apart)
    assert out.transpose(1, 2).is_contiguous()  # so that merging the heads is a view
    assert_right(q, k, v, causal=True)


def test_a_last_dimension_that_is_not_contiguous_is_accepted():
    q, k, v = (draw(1, 2, 24, 33, seed=seed).mT for seed in range(3))
    assert_right(q, k, v)


def test_second_derivatives_are_an_error_and_not_zero():
    q, k, v = (x.requires_grad_() for x in qkv(T=5, S=5))
    (dq,) = torch.autograd.grad(relu_attention(q, k, v, scale=SCALE).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # by make_dual itself
def test_forward_mode_derivatives_are_an_error_and_not_zero():
    q, k, v = qkv(T=5, S=5)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(RuntimeError, match="jvp"):
            relu_attention(dual, k, v, scale=SCALE)


def test_a_repeated_call_is_the_call_of_its_tensors(memory_as_it_is):
    """What was derived from one call serves others of its layout: other numbers, the same options; with gradients."""
    options = {"scale": SCALE, "activation": "relu", "causal": True, "window": (9, None)}
    calls = [
        (*qkv(T=20, S=24, H=4, Hk=2), draw(4, seed=5 + n), draw(1, 4, 20, 24, seed=n), torch.tensor([24, 20 - n]), None)
        for n in range(2)
    ]
    calls = [tuple(x if x is None else x.to(DEVICE) for x in call) for call in calls]
    plain = repeatable(*calls[0], **options, gradient=False, decoding=False)
    learning = repeatable(*calls[0], **options, gradient=True, decoding=False)
    for q, k, v, threshold, mask, lengths, starts in calls:
        limits = {"threshold": threshold, "mask": mask, "key_lengths": lengths}
        inputs = [x.clone().requires_grad_() for x in (q, k, v, threshold, mask)]
        out = learning(*inputs, lengths, starts)
        assert torch.equal(out, relu_attention(q, k, v, **options, **limits))
        assert torch.equal(out, plain(q, k, v, threshold, mask, lengths, starts))
        again = [x.clone().requires_grad_() for x in (q, k, v, threshold, mask)]
        given = {"threshold": again[3], "mask": again[4], "key_lengths": lengths}
        slopes = draw(*out.shape, seed=7)
        wanted = torch.autograd.grad(relu_attention(*again[:3], **options, **given), again, slopes)
        for one, other in zip(torch.autograd.grad(out, inputs, slopes), wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_a_repeated_call_drops_what_its_seed_says():
    q, k, v = (x.requires_grad_() for x in qkv(T=20, S=24))
    options = {"scale": SCALE, "activation": "relu", "causal": False, "window": (None, None), "dropout": 0.25}
    run = repeatable(q, k, v, None, None, None, None, **options, gradient=True, decoding=False)
    for number in (3, 4):
        seed = torch.tensor(number, device=DEVICE)
        out, wanted = run(q, k, v, None, None, None, None, seed), relu_attention(q, k, v, **options, seed=number)
        assert torch.equal(out, wanted)
        slopes = draw(*out.shape, seed=7)
        again = torch.autograd.grad(wanted, (q, k, v), slopes)
        for one, other in zip(torch.autograd.grad(out, (q, k, v), slopes), again, strict=True):
            torch.testing.assert_close(one, other)


def test_a_repeated_call_decodes():
    q, k, v = qkv(T=1, S=300)
    options = {"scale": SCALE, "activation": "relu", "causal": False}
    run = repeatable(q, k, v, None, None, None, None, **options, window=(None, None), gradient=False, decoding=True)
    for n in range(2):
        assert torch.equal(run(q + n, k, v, None, None, None, None), relu_attention_decode(q + n, k, v, **options))


@pytest.mark.parametrize("gradient", [False, True])
def test_a_repeated_call_keeps_no_tensor(gradient: bool):
    """A plan outlives its calls; their tensors must not."""
    inputs = [x.requires_grad_(gradient) for x in qkv(T=5, S=5)]
    kept = [weakref.ref(x) for x in inputs]
    options = {"scale": SCALE, "activation": "relu", "causal": False, "window": (None, None)}
    run = repeatable(*inputs, None, None, None, None, **options, gradient=gradient, decoding=False)
    out = run(*inputs, None, None, None, None)
    if gradient:
        out.sum().backward()
    del inputs, out
    gc.collect()
    assert run is not None
    assert all(reference() is None for reference in kept)


def test_what_has_to_be_copied_first_is_not_repeated():
    q, k, v = (draw(1, 2, 24, 33, seed=seed).mT for seed in range(3))
    options = {"scale": SCALE, "activation": "relu", "causal": False, "window": (None, None)}
    assert repeatable(q, k, v, None, None, None, None, **options, gradient=False, decoding=False) is None


def test_eager_calls_and_operators_give_the_same(memory_as_it_is):
    """Under a mode that watches the dispatcher the operators run; elsewhere the kernels, without it."""
    inputs = [x.requires_grad_() for x in (*qkv(T=20, S=24, H=4, Hk=2), draw(4, seed=5), draw(1, 4, 20, 24, seed=6))]
    limits = {"key_starts": torch.tensor([0, 7], device=DEVICE), "window": (9, 3), "dropout": 0.25, "seed": 3}

    def outcome():
        q, k, v, threshold, mask = inputs
        out = relu_attention(q, k, v, scale=SCALE, threshold=threshold, mask=mask, deterministic=True, **limits)
        return out, *torch.autograd.grad(out, inputs, draw(*out.shape, seed=7))

    class Watch(TorchDispatchMode):
        seen: ClassVar[list[str]] = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    eager = outcome()
    with Watch():
        watched = outcome()
    assert {"rela.relu_attention.default", "rela.relu_attention_backward.default"} <= set(Watch.seen)
    for one, other in zip(eager, watched, strict=True):
        assert torch.equal(one, other)


INTERVALS = {
    "starts": {"key_starts": torch.tensor([0, 21])},
    "starts and lengths": {"key_starts": torch.tensor([5, 40]), "key_lengths": torch.tensor([70, 30])},
    "window": {"window": (7, 4)},
    "wide window": {"window": (40, 33)},
    "right alone": {"window": (None, 2)},
    "window, causal": {"window": (35, None), "causal": True},
    "all": {"window": (20, 1), "key_starts": torch.tensor([3, 30]), "key_lengths": torch.tensor([71, 60])},
}


@pytest.mark.parametrize("limits", INTERVALS)
@pytest.mark.parametrize(("T", "S", "deterministic"), [(71, 71, False), (40, 71, True), (71, 33, True)])
def test_intervals(limits, T, S, deterministic):
    given = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in INTERVALS[limits].items()}
    for name in ("key_starts", "key_lengths"):
        if name in given:
            given[name] = given[name].clamp(max=S)
    q, k, v = qkv(T=T, S=S, H=2, Hk=1, B=2, D=16)
    assert_right(q, k, v, draw(2, seed=4), deterministic=deterministic, **given)


def test_a_window_reads_no_keys_beyond_it():
    q, k, v = qkv(T=4, S=200, B=1)
    wanted = relu_attention(q, k, v, scale=SCALE, window=(10, 0))
    hidden = torch.arange(200, device=DEVICE) < 200 - 4 - 10
    k, v = (x.masked_fill(hidden[:, None], float("nan")) for x in (k, v))
    assert torch.equal(relu_attention(q, k, v, scale=SCALE, window=(10, 0)), wanted)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("limits", ["starts", "starts and lengths"])
def test_gradients_read_no_keys_outside_starts_and_lengths(limits, deterministic):
    limits = {name: x.to(DEVICE) for name, x in INTERVALS[limits].items()}
    q, k, v = qkv(T=40, S=71, H=2, Hk=1, B=2, D=16)
    key, lengths = torch.arange(71, device=DEVICE), limits.get("key_lengths", torch.tensor([71, 71], device=DEVICE))
    hidden = (key < limits["key_starts"][:, None]) | (key >= lengths[:, None])

    def gradients(fill: float) -> tuple[torch.Tensor, ...]:
        keys, values = (x.detach().masked_fill(hidden[:, None, :, None], fill) for x in (k, v))
        inputs = [x.requires_grad_() for x in (q.detach(), keys, values)]
        out = relu_attention(*inputs, scale=SCALE, deterministic=deterministic, **limits)
        return torch.autograd.grad(out.square().sum(), inputs)

    for got, wanted in zip(gradients(float("nan")), gradients(0.0), strict=True):
        torch.testing.assert_close(got, wanted)
