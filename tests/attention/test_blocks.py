"""Attention in blocks on a CPU is the reference: context, gradients and second derivatives, under every limit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import rela
from rela.attention import blocks, dispatch
from rela.attention.plans import PLANS
from tests.attention.attention_cases import normal


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few queries, and for every size."""
    monkeypatch.setattr(blocks, "BYTES_OF_A_THREAD", 2048)
    monkeypatch.setattr(blocks, "ROW_BYTES", 32)
    monkeypatch.setattr(blocks, "FEWEST_SCORES", 1)
    PLANS.clear()
    yield
    PLANS.clear()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every call that is computed in blocks."""
    calls: list[int] = []
    attend = blocks.attend

    def counted(*arguments: Any) -> Tensor:
        calls.append(1)
        return attend(*arguments)

    monkeypatch.setattr(dispatch.blocks, "attend", counted)
    return calls


def case_of(seed: int) -> tuple[list[Tensor], dict[str, Any]]:
    """Random tensors of odd sizes in float64, laid out as models have them, and random options."""
    random = Random(seed)
    torch.manual_seed(seed)
    B, Hk, group = random.choice((1, 2, 3)), random.choice((1, 2, 3)), random.choice((1, 1, 2, 3))
    T, S = random.choice((1, 5, 17, 33, 41)), random.choice((1, 7, 16, 31, 50))
    D, Dv = random.choice((4, 5)), random.choice((4, 7))
    heads = Hk * group
    sizes = (T, heads, D), (S, Hk, D), (S, Hk, Dv)
    tensors = [torch.randn(B, *size, dtype=torch.float64).transpose(1, 2).requires_grad_() for size in sizes]
    kind = random.choice(blocks.WEIGHTS)
    options: dict[str, Any] = {"kind": kind, "causal": random.random() < 0.4}
    if random.random() < 0.4:
        options["window"] = random.choice((None, 0, 3, 20)), random.choice((None, 0, 2, 20))
    if random.random() < 0.4:
        options["key_lengths"] = torch.randint(0, S + 1, (B,))
    if random.random() < 0.3:
        options["key_starts"] = torch.randint(0, S + 1, (B,))
    if random.random() < 0.5:
        size = [random.choice((1, n)) for n in (B, heads, T, S)]
        boolean = torch.rand(size) < 0.7
        added = torch.randn(size, dtype=torch.float64).masked_fill(~boolean, -torch.inf)
        mask = added if kind in blocks.ADDED_MASKS and random.random() < 0.5 else boolean
        options["mask"] = mask[0, 0] if size[:2] == [1, 1] and size[2:] == [T, S] else mask
    if random.random() < 0.4:
        options["threshold"] = 0.3
    elif random.random() < 0.5:
        options["threshold"] = torch.randn(heads, dtype=torch.float64).requires_grad_()
        tensors.append(options["threshold"])
    return tensors, options


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_blocks_are_the_reference(first: int, small_blocks: None, computed: list[int]):
    for seed in range(first, first + 50):
        tensors, options = case_of(seed)
        outcomes = []
        for backend in ("auto", "reference"):
            out = rela.attend(*tensors[:3], **options, backend=backend)
            torch.manual_seed(1)
            d_out = torch.randn(out.shape, dtype=out.dtype)  # randn_like follows the order in memory
            outcomes.append([out, *torch.autograd.grad(out, tensors, d_out, allow_unused=True)])
        for name, got, wanted in zip(["out", "dq", "dk", "dv", "dtheta"], *outcomes, strict=False):
            true = torch.zeros_like(got) if wanted is None else wanted
            assert got.shape == true.shape
            assert (got - true).abs().max() <= 1e-11 * max(1.0, true.abs().max()), f"{name} of case {seed}"
    assert len(computed) == 50


@pytest.mark.parametrize("kind", blocks.WEIGHTS)
def test_gradients_and_second_derivatives(kind: str, small_blocks: None, computed: list[int]):
    """Of finite differences; no score is near zero, where a rectifier has a corner."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, n, 3, dtype=torch.float64, requires_grad=True) for n in (5, 6, 6))
    theta = torch.tensor([0.2, -0.1], dtype=torch.float64, requires_grad=True)

    def call(q: Tensor, k: Tensor, v: Tensor, theta: Tensor) -> Tensor:
        return rela.attend(q, k, v, kind=kind, causal=True, threshold=theta)

    scores = q @ k.mT * 3**-0.5 - theta[:, None, None]
    assert scores.abs().min() > 1e-3
    assert torch.autograd.gradcheck(call, (q, k, v, theta))
    assert torch.autograd.gradgradcheck(call, (q, k, v, theta))
    assert computed


@pytest.mark.parametrize("kind", blocks.WEIGHTS)
def test_dropout(kind: str, small_blocks: None, computed: list[int]):
    """Of weights made visible by values that are a unit matrix; gradients are those of the weights that were kept."""
    torch.manual_seed(0)
    q, k = (torch.randn(2, 4, 33, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    visible = torch.eye(33, dtype=torch.float64).expand(2, 4, 33, 33)
    weights = rela.attend(q, k, visible, kind=kind, causal=True, backend="reference").detach()

    def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(7)
        return rela.attend(q, k, v, kind=kind, causal=True, dropout=0.25)

    found = dropped(q, k, visible).detach()
    kept = found != 0
    torch.testing.assert_close(found[kept], weights[kept] / 0.75)
    seen = weights != 0
    assert abs(float(kept[seen].double().mean()) - 0.75) < 0.03
    apart = [kept[b, h][seen[b, h] & seen[0, 0]][:64].tolist() for b in range(2) for h in range(4)]
    assert all(one != other for i, one in enumerate(apart) for other in apart[:i]), "heads are drawn apart"
    d_out = torch.randn_like(found)
    got = torch.autograd.grad(dropped(q, k, visible), (q, k), d_out)
    plain = rela.attend(q, k, visible, kind=kind, causal=True, backend="reference") * kept / 0.75
    for one, other in zip(got, torch.autograd.grad(plain, (q, k), d_out), strict=True):
        torch.testing.assert_close(one, other)
    small = [torch.randn(1, 2, 6, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(dropped, small)
    assert torch.autograd.gradgradcheck(dropped, small)
    assert computed


def test_many_gradients_at_once(small_blocks: None, computed: list[int]):
    """As `torch.autograd.functional.jacobian(vectorize=True)` asks for them; part of the inputs has none."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, n, 3, dtype=torch.float64, requires_grad=n == 5) for n in (5, 6, 6))
    out = rela.attend(q, k, v)
    directions = torch.randn(4, *out.shape, dtype=torch.float64)
    (together,) = torch.autograd.grad(out, q, directions, is_grads_batched=True, retain_graph=True)
    apart = [torch.autograd.grad(out, q, direction, retain_graph=True)[0] for direction in directions]
    torch.testing.assert_close(together, torch.stack(apart))
    assert computed


def test_inference_mode_and_another_default_device(computed: list[int]):
    x = torch.randn(2, 2, 200, 4)
    wanted = rela.attend(x, x, x, threshold=0.1, backend="reference")
    with torch.inference_mode():
        torch.testing.assert_close(rela.attend(x, x, x, threshold=0.1), wanted)
    with torch.device("meta"):
        got = rela.attend(x, x, x, threshold=0.1, backend="auto")
    torch.testing.assert_close(got, wanted)
    assert computed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_are_as_exact_as_the_reference(dtype: torch.dtype, computed: list[int]):
    torch.manual_seed(0)
    inputs = [torch.randn(2, 530, 3, 20, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3)]
    d_out = torch.randn(2, 3, 530, 20, dtype=dtype)

    def run(backend: str, *tensors: Tensor) -> list[Tensor]:
        tensors = tuple(x.detach().requires_grad_() for x in tensors)
        out = rela.attend(*tensors, causal=True, backend=backend)
        return [out, *torch.autograd.grad(out, tensors, d_out.to(out.dtype))]

    exact = run("reference", *(x.double() for x in inputs))
    for got, same, true in zip(run("auto", *inputs), run("reference", *inputs), exact, strict=True):
        allowed = 2 * (same.double() - true).abs().max() + 1e-6
        assert (got.double() - true).abs().max() <= allowed
    assert computed


def test_a_sentence_does_not_depend_on_those_beside_it(computed: list[int]):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 260, 16)
    together = rela.attend(x, x, x, causal=True)
    alone = torch.cat([rela.attend(one, one, one, causal=True) for one in x.split(1)])
    assert torch.equal(together, alone)
    assert len(computed) == 4


def test_the_weights_never_exist_as_a_whole(monkeypatch: pytest.MonkeyPatch, computed: list[int]):
    """The largest tensor that is made has a block's scores, forward and backward."""
    made: list[int] = []
    scores_of = blocks.Scores.of

    def noted(self: blocks.Scores, block: blocks.Block) -> Tensor:
        scores = scores_of(self, block)
        made.append(sum(place.numel() for place in self.memory))
        return scores

    monkeypatch.setattr(blocks.Scores, "of", noted)
    x = torch.randn(1, 4, 2048, 8, requires_grad=True)
    rela.attend(x, x, x).sum().backward()
    assert computed
    assert 4 * max(made) <= 2 * blocks.BYTES_OF_A_THREAD * torch.get_num_threads() < 4 * 4 * 2048**2


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")
@pytest.mark.parametrize("what", ["compile", "vmap", "jvp", "autocast", "mask with a gradient", "few scores"])
def test_what_observes_or_changes_operations_takes_the_reference(what: str, computed: list[int]):
    torch.manual_seed(0)
    n = 8 if what == "few scores" else 256
    x = torch.randn(2, 2, n, 4)
    wanted = rela.attend(x, x, x, backend="reference")
    match what:
        case "compile":
            got = torch.compile(lambda x: rela.attend(x, x, x), backend="eager", fullgraph=True)(x)
        case "vmap":
            got = torch.vmap(lambda x: rela.attend(x[None], x[None], x[None])[0])(x)
        case "jvp":
            got, _ = torch.func.jvp(lambda x: rela.attend(x, x, x), (x,), (x,))
        case "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                got = rela.attend(x, x, x)
            assert got.dtype == torch.bfloat16
            return
        case "mask with a gradient":
            got = rela.attend(x, x, x, mask=torch.zeros(n, n, requires_grad=True))
        case "few scores":
            got = rela.attend(x, x, x)
    assert not computed
    torch.testing.assert_close(got, wanted)


def test_a_module_and_an_exchanged_model_compute_in_blocks(computed: list[int]):
    torch.manual_seed(0)
    module = rela.MultiheadAttention(16, 2, kind="rela-g", batch_first=True)
    x = torch.randn(2, 300, 16)
    lengths = torch.tensor([300, 211])
    out, _ = module(x, x, x, need_weights=False, key_lengths=lengths)
    assert len(computed) == 1
    module.backend = "reference"
    wanted, _ = module(x, x, x, need_weights=False, key_lengths=lengths)
    torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize("kind", ["relu", "gelu"])
def test_a_mask_made_in_inference_mode(computed: list[int], kind: str):
    """Masks are kept from call to call, and autograd refuses to save one of inference mode."""
    q, k, v = (normal(1, 2, 160, 4, seed=seed).requires_grad_() for seed in range(3))
    with torch.inference_mode():
        mask = torch.ones(160, 160, dtype=torch.bool).tril()
    (found,) = torch.autograd.grad(rela.attend(q, k, v, kind=kind, mask=mask).square().sum(), q)
    (wanted,) = torch.autograd.grad(rela.attend(q, k, v, kind=kind, causal=True).square().sum(), q)
    assert_close(found, wanted)
    assert computed
