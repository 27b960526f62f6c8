"""The Hopper kernels on the device they are for, against the equations and against the plain kernels' choice of tiles."""

import random

import pytest
import torch

pytest.importorskip("triton")

from exactness import DEVICE, assert_as_exact_as, draw, reference, run, seen_by

from rela.kernels import hopper
from rela.kernels.attention import relu_attention
from rela.kernels.problem import Problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or not hopper.available(torch.device("cuda", 0)), reason="no Hopper GPU here"
    ),
]
TYPES = [torch.bfloat16, torch.float16]


@pytest.fixture
def any_length(monkeypatch):
    """Short problems, too: more edges in less time."""
    monkeypatch.setattr(hopper, "LEAST", 1)


@pytest.fixture
def calls(monkeypatch):
    """The names of the Hopper kernels that ran."""
    names = []
    for name in ("forward", "backward"):
        original = getattr(hopper, name)

        def noted(*arguments, name=name, original=original):
            names.append(name)
            return original(*arguments)

        monkeypatch.setattr(hopper, name, noted)
    return names


def on_a_grid(*shape: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Multiples of 1/4 from −1 to 1: products and their sums are exact, so no score near zero changes its sign."""
    return (torch.randint(-4, 5, shape, generator=generator) / 4).to(dtype).to(DEVICE)


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(80))
def test_random_cases(case, calls):
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype, D, group = choose.choice(TYPES), choose.choice([64, 128]), choose.choice([1, 1, 2, 3])
    B, Hk = choose.randint(1, 3), choose.randint(1, 3)
    T, S = (choose.choice([choose.randint(1, 40), choose.randint(1, 700), 128, 256, 1024]) for _ in range(2))
    causal = choose.random() < 0.5
    shapes = (B, Hk * group, T, D), (B, Hk, S, D), (B, Hk, S, D)
    inputs = [on_a_grid(*shape, dtype=dtype, generator=generator) for shape in shapes]
    if choose.random() < 0.4:
        inputs.append(on_a_grid(Hk * group, dtype=dtype, generator=generator))

    def plain(q, k, v, threshold=None):
        return reference(q, k, v, threshold, scale=0.25, seen=seen_by(q, k, causal=causal))

    assert_as_exact_as(
        lambda q, k, v, threshold=None: relu_attention(q, k, v, scale=0.25, causal=causal, threshold=threshold),
        plain,
        *inputs,
    )
    assert calls == ["forward", "backward"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("D", [64, 128])
def test_views_of_a_fused_projection(D, dtype, causal, calls):
    """q, k and v as [B, T, 3, H, D] holds them, Gaussian, many more tiles than processors."""
    fused = draw(2, 1500, 3, 8, D, dtype=dtype)

    def split(attention):
        return lambda x: attention(*(part.transpose(1, 2) for part in x.unbind(2)))

    assert_as_exact_as(
        split(lambda q, k, v: relu_attention(q, k, v, scale=D**-0.5, causal=causal)),
        split(lambda q, k, v: reference(q, k, v, scale=D**-0.5, seen=seen_by(q, k, causal=causal))),
        fused,
    )
    assert calls == ["forward", "backward"]


@pytest.mark.parametrize("change", ["deterministic", "leaky", "lengths", "dropout", "float32", "short", "unaligned"])
def test_everything_else_stays_with_the_plain_kernels(change, calls):
    dtype = torch.float32 if change == "float32" else torch.bfloat16
    T = 300 if change == "short" else 600
    q, k, v = (draw(1, 2, T, 64 + (change == "unaligned"), dtype=dtype, seed=i)[..., :64] for i in range(3))
    options: dict[str, object] = {
        "deterministic": {"deterministic": True},
        "leaky": {"activation": "leaky_relu"},
        "lengths": {"key_lengths": torch.tensor([T - 1], device=DEVICE)},
        "dropout": {"dropout": 0.1},
    }.get(change, {})
    run(lambda *x: relu_attention(*x, scale=0.125, **options), (q, k, v), dtype)
    assert calls == (["forward"] if change == "deterministic" else [])


def test_an_expanded_gradient():
    """The gradient of a sum is one number seen everywhere, which the tensor memory accelerator cannot address."""
    q, k, v = (draw(1, 2, 640, 64, dtype=torch.bfloat16, seed=i).requires_grad_() for i in range(3))
    relu_attention(q, k, v, scale=0.125).sum().backward()
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    reference(*exact, scale=0.125).sum().backward()
    for x, true in zip((q, k, v), exact, strict=True):
        assert (x.grad.double() - true.grad).abs().max() <= 0.02 * true.grad.abs().max()


def test_nan_stays_in_its_rows():
    q, k, v = (draw(1, 1, 640, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    q[0, 0, 100] = float("nan")
    out = hopper.forward(Problem(q, k, v, None, None, None, None, None, 640, 640, None, 0.125, "relu", False, 0.0))
    assert out[0, 0, 100].isnan().all()
    assert out.isnan().any(-1).sum() == 1


@pytest.mark.usefixtures("memory_as_it_is")
def test_a_cuda_graph_captures_both(calls):
    q, k, v = (draw(2, 3, 640, 128, dtype=torch.bfloat16, seed=i).requires_grad_() for i in range(3))
    d_out = draw(2, 3, 640, 128, dtype=torch.bfloat16, seed=4)

    def step():
        out = relu_attention(q, k, v, scale=0.1, causal=True)
        return out, *torch.autograd.grad(out, (q, k, v), d_out)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        q.copy_(draw(2, 3, 640, 128, dtype=torch.bfloat16, seed=9))
    graph.replay()
    for got, true in zip(captured, step(), strict=True):
        torch.testing.assert_close(got, true, rtol=1e-2, atol=1e-2 * true.abs().max().item())
    assert calls[:2] == ["forward", "backward"]
