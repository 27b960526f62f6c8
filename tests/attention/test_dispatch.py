"""Every option of attend() and attend_packed() arrives in the fused kernel as the reference understands it.

The kernels have their own tests. Here the question is the seam: on a CPU they run in Triton's interpreter, once the
reason "not a CUDA tensor" is waived.
"""

from __future__ import annotations

import os
import re

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import rela
from rela.attention import dispatch, packed, paths, plans
from rela.attention.norms import make_norm
from rela.attention.packed import flash_softmax, through_padding
from rela.device import triton_is_installed
from rela.kernels.attention.activations import ACTIVATIONS
from rela.packing import Packing
from tests.attention.attention_cases import normal

interpreted = pytest.mark.skipif(
    not triton_is_installed() or os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter"
)


@pytest.fixture
def kernels_on_a_cpu(monkeypatch: pytest.MonkeyPatch):
    """The kernels serve in the interpreter what they serve on a GPU; plans made here are forgotten."""
    true = paths.why_not_fused
    monkeypatch.setattr(paths, "why_not_fused", lambda call: true(call._replace(device="cuda")))
    monkeypatch.setattr(plans, "PLANS", {})


def record_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path of each plan that is made from here on."""
    taken: list[str] = []
    true = paths.path_of
    monkeypatch.setattr(paths, "path_of", lambda call: taken.append(true(call)) or taken[-1])
    return taken


def single(*size: int, seed: int) -> torch.Tensor:
    return normal(*size, seed=seed, dtype=torch.float32).requires_grad_()


def gradients(out: torch.Tensor, *inputs: torch.Tensor):
    return out, torch.autograd.grad((out * normal(*out.shape, seed=9, dtype=out.dtype).to(out.device)).sum(), inputs)


def assert_same(fused, plain) -> None:
    """Sums of some dozens of products in another order: roundings of the largest element, a few dozen at most."""
    for mine, true in zip((fused[0], *fused[1]), (plain[0], *plain[1]), strict=True):
        assert_close(mine, true, rtol=0, atol=50 * torch.finfo(torch.float32).eps * true.abs().max().item())


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "scale": {"scale": 0.7},
    "number": {"threshold": 0.2},
    "lengths": {"key_lengths": torch.tensor([5, 0])},
    "mask": {"mask": normal(3, 5, seed=7) > -0.3},
    "mask of heads": {"mask": normal(2, 4, 3, 5, seed=7) > -0.3},
    "mask that repeats": {"mask": normal(1, 4, 1, 5, seed=7) > -0.3},
    "starts": {"key_starts": torch.tensor([4, 0])},
    "window": {"window": (1, 1)},
    "bias": {"mask": normal(3, 5, seed=7).float()},
    "bias of heads": {
        "mask": normal(1, 4, 3, 5, seed=7).float().masked_fill(normal(1, 4, 3, 5, seed=8) > 1, -torch.inf)
    },
    "all": {"causal": True, "scale": 0.7, "key_lengths": torch.tensor([5, 3]), "mask": normal(3, 5, seed=7) > -0.9},
}


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("weights", ACTIVATIONS)
def test_dense_calls_agree_with_the_reference(weights: str, options: str):
    q, k, v = single(2, 4, 3, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, 16, seed=2)
    call = {"kind": weights, **OPTIONS[options]}
    fused = gradients(rela.attend(q, k, v, backend="triton", **call), q, k, v)
    assert_same(fused, gradients(rela.attend(q, k, v, backend="reference", **call), q, k, v))


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("norm", ["none", "rms", "gated-rms", "gated-layer"])
def test_a_norm_after_attention_agrees_with_the_reference(norm: str, options: str):
    inputs = single(2, 4, 3, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, 16, seed=2)
    module = make_norm(norm, 64, dtype=torch.float32)
    leaves = (*inputs, *([] if module is None else module.parameters()))

    def outcome(backend: str, merged: bool):
        given = plans.Options(rela.Kind("relu"), backend=backend)._replace(**OPTIONS[options])
        out = dispatch.attend_normalised(*inputs, given, module, merged=merged)
        assert out.shape == ((2, 3, 64) if merged else (2, 3, 4, 16))
        return gradients(out.flatten(2), *leaves)

    plain = outcome("reference", True)
    for merged in (True, False):
        assert_same(outcome("triton", merged), plain)


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
def test_what_is_asked_of_the_module_of_a_norm_is_done():
    """Hooks run, a forward of its own is called, and a norm learns beside queries that do not."""
    inputs = single(2, 4, 3, 16, seed=0), single(2, 4, 5, 16, seed=1), single(2, 4, 5, 16, seed=2)
    options, norm = plans.Options(rela.Kind("relu"), backend="triton"), make_norm("gated-rms", 64, dtype=torch.float32)
    wanted, (d_gain,) = gradients(dispatch.attend_normalised(*inputs, options, norm), norm.gain)
    frozen = [x.detach() for x in inputs]
    out, (same,) = gradients(dispatch.attend_normalised(*frozen, options, norm), norm.gain)
    assert_close(out, wanted)
    assert_close(same, d_gain)
    calls = []
    handle = norm.register_forward_hook(lambda module, given, out: calls.append(out.shape))
    assert_close(dispatch.attend_normalised(*inputs, options, norm), wanted)
    handle.remove()
    assert calls == [(2, 3, 64)]
    norm.forward = lambda z: 2.0 * type(norm).forward(norm, z)
    assert_close(dispatch.attend_normalised(*inputs, options, norm), 2.0 * wanted)


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize("merged", [True, False])
def test_a_norm_after_decoding(merged: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paths, "FEWEST_DECODE_KEYS", 1)
    taken = record_paths(monkeypatch)
    q, k, v = single(2, 4, 1, 16, seed=0), single(2, 2, 9, 16, seed=1), single(2, 2, 9, 16, seed=2)
    norm = make_norm("gated-rms", 64, dtype=torch.float32)
    with torch.no_grad():
        for _ in range(2):  # planned, and by the plan
            decoded, plain = (
                dispatch.attend_normalised(
                    q, k, v, plans.Options(rela.Kind("relu"), backend=backend), norm, False, merged
                )
                for backend in ("triton", "reference")
            )
            assert_close(decoded, plain)
    assert taken == ["decode", "reference"]


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize("value_size", [7, 40])
def test_values_of_another_size(value_size: int, monkeypatch: pytest.MonkeyPatch):
    """Dense, on the simplex, decoded, packed and with statistics: on the fused path, and what the equation gives."""
    q, k, v = single(2, 4, 3, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, value_size, seed=2)
    for kind in ("relu", "sparsemax"):
        fused, plain = (
            gradients(rela.attend(q, k, v, kind=kind, causal=True, backend=backend), q, k, v)
            for backend in ("triton", "reference")
        )
        assert fused[0].shape == (2, 4, 3, value_size)
        assert_same(fused, plain)
    fused, plain = (
        rela.attend_with_statistics(q, k, v, causal=True, backend=backend) for backend in ("triton", "reference")
    )
    assert_close(fused[0], plain[0])
    assert torch.equal(fused[1].argmax, plain[1].argmax)
    monkeypatch.setattr(paths, "FEWEST_DECODE_KEYS", 1)
    with torch.no_grad():
        decoded, plain = (rela.attend(q[:, :, :1], k, v, backend=backend) for backend in ("triton", "reference"))
    assert_close(decoded, plain)
    monkeypatch.setattr(packed, "why_not_fused", lambda *_, **__: None)
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    cu_q, cu_k = (torch.tensor(cu, dtype=torch.int32) for cu in ([0, 1, 3], [0, 3, 5]))
    fused, plain = (
        rela.attend_packed(q, k, v, cu_q, cu_k, 2, 3, backend=backend) for backend in ("triton", "reference")
    )
    assert_close(fused, plain)


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
def test_slopes_and_their_gradient():
    """Fused and reference agree, and a causal query falls off by the slope for each key behind it."""
    q, k, v = single(2, 4, 5, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, 16, seed=2)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], requires_grad=True)
    given = {"alibi_slopes": slopes, "causal": True, "key_starts": torch.tensor([0, 2])}
    fused, plain = (
        gradients(rela.attend(q, k, v, backend=backend, **given), q, k, v, slopes)
        for backend in ("triton", "reference")
    )
    assert_same(fused, plain)
    weights = rela.attention_weights(torch.zeros_like(q), k, alibi_slopes=slopes, causal=True, threshold=-2.0)
    assert_close(weights[0, :, 4], 2.0 - slopes[:, None] * torch.arange(4, -1, -1))
    context, statistics = rela.attend_with_statistics(q, k, v, **given)
    assert_close(context, plain[0])
    assert statistics.nonzeros.shape == (2, 4, 5)


@pytest.mark.parametrize(
    ("slopes", "words"),
    [
        ([0.5], "alibi_slopes is a list; wanted a tensor [2]"),
        (torch.ones(3), "alibi_slopes has shape [3]; wanted [2], one for each head"),
        (torch.ones(2, dtype=torch.int64), "alibi_slopes is torch.int64; wanted a floating point type"),
    ],
)
def test_slopes_are_one_number_a_head(slopes: object, words: str):
    q, k, v = (torch.zeros(1, 2, 3, 4) for _ in range(3))
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        rela.attend(q, k, v, alibi_slopes=slopes)


SIMPLEX_OPTIONS = [name for name in OPTIONS if name != "number" and not name.startswith("bias")]


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize("options", SIMPLEX_OPTIONS)
def test_dense_on_the_simplex(options: str):
    """Each option with one of three kinds; without a mask added to the scores, for which there is no kernel."""
    q, k, v = single(2, 4, 3, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, 16, seed=2)
    kind = ("sparsemax", "entmax15", "entmax:1.3")[SIMPLEX_OPTIONS.index(options) % 3]
    call = {"kind": kind, **OPTIONS[options]}
    fused = gradients(rela.attend(q, k, v, backend="triton", **call), q, k, v)
    assert_same(fused, gradients(rela.attend(q, k, v, backend="reference", **call), q, k, v))
    with pytest.raises(ValueError, match="takes boolean masks, and this one is"):
        rela.attend(q, k, v, kind=kind, mask=torch.zeros(3, 5), backend="triton")


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
def test_simplex_attention_is_one_graph():
    """A compiler sees an operator: the same numbers, forward and backward, also with dropout of the same seed."""
    q, k, v = single(1, 4, 3, 16, seed=0), single(1, 2, 5, 16, seed=1), single(1, 2, 5, 16, seed=2)

    def call(q, k, v):
        return rela.attend(q, k, v, kind="entmax15", causal=True, dropout=0.3, backend="triton")

    outcomes = []
    for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(1)
        outcomes.append(gradients(function(q, k, v), q, k, v))
    assert_same(*outcomes)


@interpreted
@pytest.mark.parametrize("kind", ["sparsemax", "entmax15"])
def test_packed_on_the_simplex(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed, "why_not_fused", lambda *_, **__: None)
    q, k, v = single(7, 4, 16, seed=0), single(8, 2, 16, seed=1), single(8, 2, 16, seed=2)
    cu_q, cu_k = (torch.tensor(cu, dtype=torch.int32) for cu in ([0, 3, 3, 6], [0, 4, 5, 7]))
    fused, plain = (
        gradients(rela.attend_packed(q, k, v, cu_q, cu_k, 3, 4, kind=kind, causal=True, backend=backend), q, k, v)
        for backend in ("triton", "reference")
    )
    assert_same(fused, plain)


@interpreted
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("threshold", ["none", "number", "heads"])
def test_packed_calls_agree_with_the_reference(causal: bool, threshold: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed, "why_not_fused", lambda *_, **__: None)
    q, k, v = single(7, 4, 16, seed=0), single(8, 2, 16, seed=1), single(8, 2, 16, seed=2)
    cu_q, cu_k = (torch.tensor(cu, dtype=torch.int32) for cu in ([0, 3, 3, 6], [0, 4, 5, 7]))
    theta = {"none": 0.0, "number": 0.2, "heads": torch.tensor([0.1, -0.2, 0.3, 0.0], requires_grad=True)}[threshold]
    inputs = (q, k, v) if threshold != "heads" else (q, k, v, theta)

    def call(backend: str):
        out = rela.attend_packed(
            q, k, v, cu_q, cu_k, 3, 4, kind="relu", causal=causal, threshold=theta, backend=backend
        )
        return gradients(out, *inputs)

    assert_same(call("triton"), call("reference"))


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
def test_learned_thresholds_and_their_gradient():
    q, k, v = (single(2, 4, 5, 16, seed=seed) for seed in range(3))
    theta = torch.tensor([0.3, -0.2, 0.0, 0.1], requires_grad=True)
    fused, plain = (
        gradients(rela.attend(q, k, v, kind="relu", threshold=theta, backend=backend), q, k, v, theta)
        for backend in ("triton", "reference")
    )
    assert_same(fused, plain)


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
def test_dropout_is_drawn_anew_and_follows_the_seed():
    q, k, v = (single(1, 2, 9, 16, seed=seed) for seed in range(3))

    def call(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return rela.attend(q, k, v, kind="relu", dropout=0.5, backend="triton")

    assert torch.equal(call(1), call(1))
    assert not torch.equal(call(1), call(2))
    assert not torch.equal(call(1), rela.attend(q, k, v, kind="relu", dropout=0.5, backend="triton"))


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize("weights", ["relu", "leaky_relu"])
def test_statistics_of_the_kernel_are_those_of_the_weights(weights: str):
    q, k, v = single(2, 4, 3, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, 16, seed=2)
    call = {"kind": weights, "key_lengths": torch.tensor([5, 0]), "window": (3, 1), "threshold": 0.3}
    (context, fused), (plain, exact) = (
        rela.attend_with_statistics(q, k, v, backend=backend, **call) for backend in ("triton", "reference")
    )
    assert_close(context, plain)
    assert torch.equal(fused.nonzeros, exact.nonzeros)
    assert torch.equal(fused.argmax, exact.argmax)
    assert_close(fused.largest, exact.largest)
    assert (exact.argmax[1] == -1).all()
    rows = rela.attention_weights(q, k, **call)
    assert torch.equal(exact.nonzeros, (rows != 0).sum(-1, dtype=torch.int32))


def test_statistics_of_any_kind():
    q, k, v = single(2, 4, 3, 16, seed=0), single(2, 2, 5, 16, seed=1), single(2, 2, 5, 16, seed=2)
    context, rows = rela.attend_with_statistics(q, k, v, kind="topk:2")
    assert (rows.nonzeros == 2).all()
    assert torch.equal(context, rela.attend(q, k, v, kind="topk:2"))
    none = rela.attend_with_statistics(q, k[:, :, :0], v[:, :, :0])[1]
    assert (none.argmax == -1).all()
    assert (none.largest == 0).all()


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"causal": True},
        {"key_lengths": torch.tensor([300, 7])},
        {"key_starts": torch.tensor([0, 290])},
        {"window": (30, 0)},
    ],
)
def test_one_query_is_decoded_by_every_door(limits: dict, monkeypatch: pytest.MonkeyPatch):
    """`attend` without gradient reaches the kernel for few queries, and it gives what the equation gives."""
    taken = record_paths(monkeypatch)
    q, k, v = (single(2, heads, rows, 16, seed=n) for n, (heads, rows) in enumerate([(4, 1), (2, 300), (2, 300)]))
    with torch.no_grad():
        context = rela.attend(q, k, v, **limits)
        assert torch.equal(context, rela.attend(q, k, v, **limits)), "the plan that is looked up does the same"
    exact = rela.attend(*(x.detach().double() for x in (q, k, v)), backend="reference", **limits)
    assert_close(context.double(), exact, rtol=0, atol=50 * torch.finfo(torch.float32).eps * exact.abs().max().item())
    rela.attend(q, k, v, **limits)  # with a gradient it is not
    assert taken == ["decode", "reference", "fused"]


@interpreted
@pytest.mark.usefixtures("kernels_on_a_cpu")
def test_a_module_with_a_cache_is_decoded(monkeypatch: pytest.MonkeyPatch):
    taken = record_paths(monkeypatch)
    torch.manual_seed(0)
    module = rela.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(2, 301, 16)
    with torch.no_grad():
        cache = module.remember(x[:, :300])
        step = module(*[x[:, 300:]] * 3, is_causal=True, need_weights=False, cache=cache)[0]
        assert taken == ["decode"]
        assert_close(step, module(x, x, x, is_causal=True)[0][:, 300:], rtol=1e-4, atol=1e-5)


LIMITS = {
    "lengths": {"key_lengths": torch.tensor([5, 0])},
    "starts": {"key_starts": torch.tensor([5, 2])},
    "window": {"window": (1, 1)},
    "causal": {"causal": True},
    "mask": {"mask": normal(3, 5, seed=7) > 0},
    "bias": {"mask": normal(1, 4, 3, 5, seed=7).masked_fill(normal(1, 4, 3, 5, seed=8) > 0, -torch.inf)},
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("heads", [4, 2])
def test_softmax_by_torch_with_limits(limits: str, heads: int):
    """PyTorch's kernels, its empty rows made safe: what a GPU takes, here on the CPU against the equation."""
    q, k, v = single(2, 4, 3, 16, seed=0), single(2, heads, 5, 16, seed=1), single(2, heads, 5, 16, seed=2)
    options = plans.Options(rela.Kind("softmax"), **LIMITS[limits])
    causal, sides = plans.simplest(options.causal, options.window, 3, 5)
    plan = plans.Plan("softmax", 0.25, causal, sides, None)
    mine = gradients(dispatch.torch_softmax(plan, q, k, v, options), q, k, v)
    plain = rela.attend(q, k, v, kind="softmax", scale=0.25, backend="reference", **LIMITS[limits])
    assert_same(mine, gradients(plain, q, k, v))


@pytest.mark.gpu
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_with_limits_on_a_gpu(limits: str, dtype: torch.dtype):
    q, k, v = (normal(2, 4, rows, 64, seed=rows, dtype=dtype).cuda().requires_grad_() for rows in (3, 5, 5))
    given = {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in LIMITS[limits].items()}
    mine = gradients(rela.attend(q, k, v, kind="softmax", **given), q, k, v)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    plain = gradients(rela.attend(*exact, kind="softmax", backend="reference", **given), *exact)
    step = 8 * torch.finfo(dtype).eps
    for one, true in zip((mine[0], *mine[1]), (plain[0], *plain[1]), strict=True):
        assert_close(one.double(), true, rtol=step, atol=step * true.abs().max().item())


REASONS = {
    "weights": (lambda q: dispatch.why_not_fused(q, rela.Kind("softmax")), "softmax weights have no fused kernel"),
    "device": (lambda q: dispatch.why_not_fused(q, rela.Kind("relu")), "runs on CUDA tensors, and q is on cpu"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_reason_is_given(reason: str):
    ask, words = REASONS[reason]
    assert words in ask(torch.zeros(1, 1, 2, 16))


@pytest.mark.gpu
def test_reasons_on_a_gpu():
    def ask(dtype: torch.dtype = torch.bfloat16, size: int = 64, **given) -> str | None:
        return dispatch.why_not_fused(
            torch.zeros(1, 1, 2, size, dtype=dtype, device="cuda"), rela.Kind("relu"), **given
        )

    assert ask() is None
    assert "takes float32, bfloat16 and float16, and q is torch.float64" in ask(torch.float64)
    assert "head sizes up to 256, and q has 257" in ask(size=257)
    assert ask(mask=torch.zeros(2, 2, device="cuda")) is None
    assert ask(v=torch.zeros(1, 1, 2, 32, device="cuda")) is None
    assert "head sizes up to 256, and v has 300" in ask(v=torch.zeros(1, 1, 2, 300, device="cuda"))


def packings(device: str) -> tuple[Packing, Packing]:
    """Three sentences of 3, 2 and 2 queries, and of 4, no and 4 keys."""
    cu_q, cu_k = (torch.tensor(cu, dtype=torch.int32, device=device) for cu in ([0, 3, 5, 7], [0, 4, 4, 8]))
    return Packing(cu_q, 3), Packing(cu_k, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [4, 2])
def test_packed_softmax_on_a_gpu(causal: bool, groups: int, dtype: torch.dtype):
    """PyTorch's flash kernel against the reference: filler, a sentence without keys, T ≠ S, grouped heads."""
    q, k, v = (normal(9, 4 if n == 0 else groups, 16, seed=n, dtype=dtype).cuda().requires_grad_() for n in range(3))
    queries, keys = packings("cuda")
    scale = 0.25
    flash = gradients(flash_softmax(q, k, v, queries, keys, causal, scale, 0.0), q, k, v)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    plain = gradients(through_padding(*exact, queries, keys, "softmax", causal, scale, 0.0, 0.0), *exact)
    step = 4 * torch.finfo(dtype).eps
    for mine, true in zip((flash[0], *flash[1]), (plain[0], *plain[1]), strict=True):
        assert_close(mine.double(), true, rtol=step, atol=step)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
def test_the_packed_reference_compiled_for_a_gpu(causal: bool):
    """Kinds without a kernel train through it: every token must find its own sentence, filler none."""
    q, k, v = (normal(9, 2, 16, seed=n).cuda().requires_grad_() for n in range(3))
    queries, keys = packings("cuda")
    options = (queries, keys, "topk:2", causal, 0.25, 0.0, 0.0)
    plain = gradients(through_padding(q, k, v, *options), q, k, v)
    compiled = gradients(torch.compile(through_padding, dynamic=False)(q, k, v, *options), q, k, v)
    for mine, true in zip((compiled[0], *compiled[1]), (plain[0], *plain[1]), strict=True):
        assert_close(mine, true)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "kind",
    ["softmax", "rela-g", "rela-i", "relu2-g", "rela-g-leaky", "rela-g-gelu", "sparsemax", "entmax15", "entmax:1.3"],
)
def test_modules_compile_on_a_gpu(kind: str):
    """The fused kernels and norms inside one graph, the first call of the process included."""
    if kind.startswith(("sparsemax", "entmax")):
        pytest.importorskip("entmax")  # the reference
    torch._dynamo.reset()  # each kind is a compilation of the same code, and there is a limit
    torch.manual_seed(0)
    module = rela.MultiheadAttention(64, 4, batch_first=True, kind=kind, device="cuda")
    x = torch.randn(2, 33, 64, device="cuda")
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    call = {"is_causal": True, "need_weights": False}
    assert_close(compiled(x, x, x, **call)[0], module(x, x, x, **call)[0], rtol=1e-3, atol=1e-3)
    exact = rela.MultiheadAttention(64, 4, batch_first=True, kind=kind, dtype=torch.float64)
    exact.load_state_dict(module.state_dict())
    expected = exact(*[x.double().cpu()] * 3, **call)[0]
    assert_close(module(x, x, x, **call)[0].double().cpu(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("limit", ["key_lengths", "key_starts"])
@pytest.mark.parametrize("weights", ["relu", "softmax"])
def test_vmap_over_limits(weights: str, limit: str):
    q, k, v = (normal(2, 3, 2, 5, 4, seed=seed) for seed in range(3))
    limits = torch.tensor([[0, 5, 2], [1, 4, 3]])

    def context(q: Tensor, k: Tensor, v: Tensor, values: Tensor) -> Tensor:
        return rela.attend(q, k, v, kind=weights, **{limit: values})

    wanted = torch.stack([context(*one) for one in zip(q, k, v, limits, strict=True)])
    assert_close(torch.vmap(context)(q, k, v, limits), wanted)
    given = q, k, v, limits
    found = torch.vmap(torch.func.grad(lambda *one: context(*one).square().sum()))(*given)
    q.requires_grad_()
    assert_close(found, torch.autograd.grad(torch.vmap(context)(*given).square().sum(), q)[0])


@pytest.mark.filterwarnings("ignore:torch.searchsorted")  # slower where vmap repeats its input
def test_vmap_over_a_packing():
    x, ends = normal(2, 6, 3, 4), torch.tensor([[0, 2, 6], [0, 5, 5]], dtype=torch.int32)

    def context(x: Tensor, ends: Tensor) -> Tensor:
        return rela.attend_packed(x, x, x, ends, ends, 5, 5, causal=True)

    wanted = torch.stack([context(*one) for one in zip(x, ends, strict=True)])
    assert_close(torch.vmap(context)(x, ends), wanted)


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # PyTorch's own, in forward mode
def test_forward_derivatives_of_softmax():
    """PyTorch's own kernels have none."""
    q, k, v, tangent = (normal(1, 2, 5, 4, seed=seed) for seed in range(4))
    _, found = torch.func.jvp(lambda q: rela.attend(q, k, v, kind="softmax"), (q,), (tangent,))
    _, wanted = torch.func.jvp(lambda q: (q @ k.mT / 2).softmax(-1) @ v, (q,), (tangent,))
    assert_close(found, wanted)
