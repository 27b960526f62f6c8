"""The kernels on the device they are for: bfloat16, large shapes, random cases, CUDA graphs."""

import random

import pytest
import torch

pytest.importorskip("triton")

import rela
from rela.kernels.attention.functional import relu_attention, relu_attention_decode, relu_attention_packed
from rela.kernels.hopper import dispatch as hopper
from rela.packing import Packing
from tests.kernels.attention.combinations import STRUCTURES, assert_structure, on_a_grid
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw, recorded, reference, seen_by
from tests.kernels.packed_layer import layer_and_inputs

pytestmark = pytest.mark.gpu

TYPES = [torch.bfloat16, torch.float16, torch.float32]
CASES = 200


@pytest.mark.parametrize("case", range(CASES))
def test_random_cases(case):
    """Lengths, heads, head sizes, types and options at random, the same on every machine."""
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype = choose.choice(TYPES)
    D, group = choose.choice([32, 60, 64, 64, 80, 128, 256]), choose.choice([1, 1, 2, 4])
    B, Hk, T, S = choose.randint(1, 3), choose.randint(1, 2), choose.randint(1, 400), choose.randint(1, 400)
    H = Hk * group
    activation = choose.choice(["relu", "relu", "relu2", "leaky_relu"])
    visibility = {"causal": choose.random() < 0.5}
    if choose.random() < 0.4:
        visibility["key_lengths"] = torch.randint(0, S + 1, (B,), generator=generator).to(DEVICE)
    if choose.random() < 0.3:
        shape = [n if choose.random() < 0.7 else 1 for n in (B, H, T, S)]
        visibility["mask"] = (torch.rand(shape, generator=generator) < 0.6).to(DEVICE)
    inputs = [
        on_a_grid(*shape, dtype=dtype, generator=generator) for shape in ((B, H, T, D), (B, Hk, S, D), (B, Hk, S, D))
    ]
    if choose.random() < 0.4:
        inputs.append(on_a_grid(H, dtype=dtype, generator=generator))
    deterministic = choose.random() < 0.5

    def fused(q, k, v, threshold=None):
        options = {"scale": 0.25, "activation": activation, "deterministic": deterministic, **visibility}
        return relu_attention(q, k, v, threshold=threshold, **options)

    def plain(q, k, v, threshold=None):
        seen = seen_by(q, k, **visibility)
        return reference(q, k, v, threshold, scale=0.25, activation=activation, seen=seen)

    assert_as_exact_as(fused, plain, *inputs)


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_random_combinations_of_all_options(structure, calls):
    """The public call: lengths, starts, window, mask, bias, groups, θ, dropout, type, strides, both head sizes."""
    served = assert_structure(
        structure, range(CASES // len(STRUCTURES))
    )  # compiling takes seconds, a case milliseconds
    on_hopper = hopper.available(torch.device(DEVICE, 0))
    expected = [name for who in served if who == "hopper" and on_hopper for name in ("forward", "backward")]
    assert calls == expected


@pytest.mark.parametrize("case", range(40))
def test_random_packed_cases(case):
    """A packed call against the same sequences padded to a batch, each judged by the plain equation."""
    choose = random.Random(1000 + case)
    generator = torch.Generator().manual_seed(case)
    dtype, D, causal = choose.choice(TYPES), choose.choice([32, 64, 60, 128]), choose.random() < 0.5
    B, longest = choose.randint(1, 40), choose.choice([10, 60, 300])
    lengths_q = [choose.randint(0, longest) for _ in range(B)]
    lengths_k = lengths_q if choose.random() < 0.5 else [choose.randint(0, longest) for _ in range(B)]
    padding = choose.randint(0, 200)
    cu_q, cu_k = (
        torch.tensor([0, *lengths], device=DEVICE).cumsum(0).to(torch.int32) for lengths in (lengths_q, lengths_k)
    )
    T, S = sum(lengths_q) + padding, sum(lengths_k) + padding
    row_q = torch.repeat_interleave(torch.arange(B), torch.tensor(lengths_q)).to(DEVICE)
    row_k = torch.repeat_interleave(torch.arange(B), torch.tensor(lengths_k)).to(DEVICE)
    seen = torch.zeros(T, S, dtype=torch.bool, device=DEVICE)
    seen[: len(row_q), : len(row_k)] = row_q[:, None] == row_k
    if causal and B:
        to_end_q = cu_q[1:][row_q] - torch.arange(len(row_q), device=DEVICE)
        to_end_k = cu_k[1:][row_k] - torch.arange(len(row_k), device=DEVICE)
        seen[: len(row_q), : len(row_k)] &= to_end_k >= to_end_q[:, None]
    q = on_a_grid(T, 4, D, dtype=dtype, generator=generator)
    k, v = (on_a_grid(S, 2, D, dtype=dtype, generator=generator) for _ in range(2))
    threshold = on_a_grid(4, dtype=dtype, generator=generator)

    def fused(q, k, v, threshold):
        return relu_attention_packed(
            q, k, v, Packing(cu_q, longest), Packing(cu_k, longest), scale=0.25, causal=causal, threshold=threshold
        )

    def plain(q, k, v, threshold):
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        return reference(q, k, v, threshold, scale=0.25, seen=seen)[0].transpose(0, 1)

    if T and S:
        assert_as_exact_as(fused, plain, q, k, v, threshold)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("D", [64, 128])
def test_large_shapes(D, dtype, causal, deterministic):
    """Gaussian inputs: here the precision of the products counts.

    float32 takes fewer: of millions of scores one would lie within rounding of zero, where the gradient jumps.
    """
    T, S = (1500, 1403) if dtype != torch.float32 else (300, 277)
    q, k, v = (draw(2, 2, rows, D, dtype=dtype, seed=seed) for seed, rows in enumerate((T, S, S)))
    assert_as_exact_as(
        lambda *x: relu_attention(*x, scale=D**-0.5, causal=causal, deterministic=deterministic),
        lambda *x: reference(*x, scale=D**-0.5, seen=seen_by(*x[:2], causal=causal)),
        q,
        k,
        v,
    )


def test_one_tensor_after_another_at_an_odd_address():
    """The same layouts but for the place of q, then of k, then of v: each needs a kernel of its own."""
    inputs = [draw(2, 2, 70, 64, dtype=torch.bfloat16, seed=i) for i in range(3)]
    exact = reference(*(x.double() for x in inputs), scale=0.125)
    for place in range(3):
        moved = inputs[place]
        odd = torch.zeros(moved.numel() + 4, dtype=moved.dtype, device=DEVICE)[4:].view_as(moved).copy_(moved)
        got = rela.attend(*(odd if i == place else x for i, x in enumerate(inputs)))
        torch.testing.assert_close(got.double(), exact, rtol=0, atol=0.02 * exact.abs().max().item())


def test_more_than_two_to_the_31_elements():
    """Offsets beyond 32 bits: the last rows of a tensor of 2.4 billion elements."""
    B, T, H, D = 9, 4096, 512, 128
    q, k, v = torch.randn(B, T, 3, H, D, dtype=torch.bfloat16, device=DEVICE).unbind(2)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = relu_attention(q, k, v, scale=D**-0.5, causal=True)
    last = [x[-1:, -1:] for x in (q, k, v)]
    exact = reference(*(x.double() for x in last), scale=D**-0.5, seen=seen_by(*last[:2], causal=True))
    torch.testing.assert_close(out[-1:, -1:].double(), exact, rtol=0, atol=0.02 * exact.abs().max().item())


def test_decoding_a_long_cache():
    for dtype in TYPES:
        q, k, v = draw(2, 8, 1, 64, dtype=dtype, seed=1), *(draw(2, 2, 20001, 64, dtype=dtype, seed=s) for s in (2, 3))
        threshold = torch.full((8,), 1.0, dtype=dtype, device=DEVICE)
        lengths = torch.tensor([20001, 12345], device=DEVICE)
        options = {"scale": 0.125, "seen": seen_by(q, k, key_lengths=lengths)}
        got = relu_attention_decode(q, k, v, scale=0.125, threshold=threshold, key_lengths=lengths)
        exact = reference(*(x.double() for x in (q, k, v, threshold)), **options)
        error = (reference(q, k, v, threshold, **options).double() - exact).abs().max()
        assert (got.double() - exact).abs().max() <= 2 * error + 1e-6


@pytest.mark.usefixtures("memory_as_it_is")
def test_a_cuda_graph_captures_forward_and_backward():
    layer, x, cu, seed = layer_and_inputs()
    parameters = list(layer.parameters())

    def step():
        out = layer(x, cu, seed)
        return out, *torch.autograd.grad(out.square().sum(), parameters)

    graph, captured = recorded(step)
    x.copy_(draw(210, 128, seed=2))
    seed.fill_(8)
    cu.copy_(torch.tensor([0, 40, 130, 205], dtype=torch.int32))
    graph.replay()
    for got, true in zip(captured, step(), strict=True):
        torch.testing.assert_close(got, true, rtol=1e-4, atol=1e-4 * true.abs().max().item())
