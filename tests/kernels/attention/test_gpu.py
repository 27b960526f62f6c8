"""The kernels on the device they are for: bfloat16, large shapes, random cases, CUDA graphs."""

import random
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton")

import rela
from rela.attention.dispatch import dropout_seed
from rela.kernels.attention.functional import relu_attention, relu_attention_decode, relu_attention_packed
from rela.kernels.hopper import dispatch as hopper
from rela.packing import Packing
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw, recorded, reference, seen_by
from tests.kernels.packed_layer import layer_and_inputs

pytestmark = pytest.mark.gpu

TYPES = [torch.bfloat16, torch.float16, torch.float32]
CASES = 200


def on_a_grid(*shape: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Multiples of 1/4 from −1 to 1: products and their sums are exact, so no score near zero changes its sign."""
    return (torch.randint(-4, 5, shape, generator=generator) / 4).to(dtype).to(DEVICE)


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


@dataclass(frozen=True)
class Structure:
    """What kernels are compiled for: type, head sizes, group, what hides keys or changes weights; and who serves it."""

    dtype: torch.dtype
    D: int
    group: int
    options: str = ""
    on_hopper: bool = True
    Dv: int | None = None
    kind: str = "relu"
    ways: tuple[str, ...] = ("heads first", "heads last", "projection")

    def __str__(self) -> str:
        return "-".join([str(self.dtype).removeprefix("torch."), str(self.D), str(self.group), *self.options.split()])


BF16, FP16, FP32 = TYPES
STRUCTURES = [
    Structure(BF16, 64, 1),
    Structure(BF16, 64, 2, "bias causal threshold"),
    Structure(FP16, 128, 1, "bias lengths"),
    Structure(BF16, 128, 2, "bias starts window dropout"),
    Structure(BF16, 64, 1, "bias causal lengths starts threshold"),
    Structure(FP16, 64, 1, "bias dropout threshold"),
    Structure(FP16, 64, 4, "mask lengths causal"),
    Structure(BF16, 128, 1, "mask starts threshold dropout"),
    Structure(BF16, 64, 1, "lengths starts window causal"),
    Structure(FP16, 128, 2, "window threshold causal"),
    Structure(BF16, 64, 1, "dropout lengths"),
    Structure(BF16, 64, 1, "bias lengths", Dv=128),
    Structure(FP32, 64, 2, "mask lengths threshold causal", on_hopper=False),
    Structure(BF16, 80, 1, "bias starts window", on_hopper=False),
    Structure(FP16, 96, 2, "dropout lengths causal", on_hopper=False),
    Structure(BF16, 256, 1, "mask window dropout", on_hopper=False),
    Structure(BF16, 32, 1, "starts causal threshold", on_hopper=False, kind="relu2"),
    Structure(FP32, 48, 1, "bias dropout", on_hopper=False),
    Structure(BF16, 64, 2, "bias lengths", on_hopper=False, ways=("unaligned",)),
    Structure(BF16, 160, 4, "starts threshold", on_hopper=False, Dv=64),
]
CASES_OF_A_STRUCTURE = CASES // len(STRUCTURES)  # compiling takes seconds, a case milliseconds


def laid_out(x: torch.Tensor, how: str) -> torch.Tensor:
    """x [B, H, N, D] as it may lie in memory; "unaligned" are rows of one number more than they have."""
    if how == "heads last":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "projection":  # the second of three parts of a row
        row = x.transpose(1, 2)
        return torch.cat([row, row, row], dim=2).chunk(3, dim=2)[1].transpose(1, 2)
    return torch.nn.functional.pad(x, (0, 1))[..., :-1] if how == "unaligned" else x


def poisoned(x: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """x [B, H, N, D], with the same strides, and NaN in the rows `outside` [B, N]."""
    copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    return copy.masked_fill_(outside[:, None, :, None], torch.nan)


def kept_of(seed: torch.Tensor | int, shape: tuple[int, int, int, int], rate: float) -> torch.Tensor:
    """The factors of dropout [B, H, T, S]: weights of one, and columns of the identity as values, 64 at a time."""
    B, H, T, S = shape
    q, k = torch.ones(B, H, T, 64, device=DEVICE), torch.ones(B, H, S, 64, device=DEVICE)
    columns = torch.nn.functional.pad(torch.eye(S, device=DEVICE), (0, -S % 64)).split(64, 1)
    options = {"scale": 1 / 64, "dropout": rate, "seed": seed}
    parts = [relu_attention(q, k, part.contiguous().expand(B, H, S, 64), **options) for part in columns]
    return torch.cat(parts, -1)[..., :S]


def random_mask(choose: random.Random, shape: tuple[int, int, int, int], dtype: torch.dtype | None) -> torch.Tensor:
    """A boolean mask, or a float one of multiples of 1/4 and −inf; for all batch elements or heads, or not."""
    B, H, T, S = shape
    generator = torch.Generator().manual_seed(choose.randrange(2**31))
    own = choose.choice([shape, shape, (1, H, T, S), (B, 1, T, S), (1, 1, T, S), (1, H, 1, S), (B, 1, T, 1)])
    seen = (torch.rand(own, generator=generator) < 0.7).to(DEVICE)
    mask = seen if dtype is None else on_a_grid(*own, dtype=dtype, generator=generator).masked_fill(~seen, -torch.inf)
    how = choose.choice(["plain", "plain", "expanded", "heads last"])
    if how == "heads last":
        return mask.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    return mask.expand(shape) if how == "expanded" else mask


def random_limits(
    choose: random.Random, structure: Structure, B: int, S: int
) -> tuple[dict[str, object], torch.Tensor]:
    """The kind and what hides keys beside a mask, and which keys [B, S] no query may see whatever it says."""
    options, limits = structure.options.split(), {"kind": structure.kind, "causal": "causal" in structure.options}
    outside = torch.zeros(B, S, dtype=torch.bool, device=DEVICE)
    key, whole = torch.arange(S, device=DEVICE), torch.int64 if structure.group > 1 else torch.int32
    if "lengths" in options:
        lengths = torch.tensor([choose.randint(0, S) for _ in range(B)], dtype=whole, device=DEVICE)
        limits["key_lengths"], outside = lengths, outside | (key >= lengths[:, None])
    if "starts" in options:
        starts = [choose.choice([choose.randint(0, 60), choose.randint(0, S)]) for _ in range(B)]
        limits["key_starts"] = torch.tensor(starts, dtype=whole, device=DEVICE)
        outside = outside | (key < limits["key_starts"][:, None])
    if "window" in options:
        limits["window"] = (choose.choice([0, 50, 130]), choose.choice([None, 30]))
    return limits, outside


def assert_right(structure: Structure, case: int) -> str:
    """One random call of a structure against the equation; gives "hopper" or "plain", whose it is."""
    choose, generator = random.Random(5000 + case), torch.Generator().manual_seed(case)
    options, dtype, D = structure.options.split(), structure.dtype, structure.D
    B, Hk, group = choose.randint(1, 3), choose.randint(1, 2), structure.group
    H, Dv, rate = Hk * group, structure.Dv or D, 0.5 if "dropout" in options else 0.0  # whose factor rounds nothing
    T, S = choose.choice([130, 200, 300, 384]), choose.choice([140, 256, 300, 140 if rate else 500])
    limits, outside = random_limits(choose, structure, B, S)
    inputs = [
        laid_out(on_a_grid(*shape, dtype=dtype, generator=generator), choose.choice(structure.ways))
        for shape in ((B, H, T, D), (B, Hk, S, D), (B, Hk, S, Dv))
    ]
    given = [inputs[0], *(poisoned(x, outside) for x in inputs[1:])]
    names: list[str] = []
    if "threshold" in options:
        names.append("threshold")
        given.append(on_a_grid(H, dtype=dtype, generator=generator))
    if "bias" in options:
        names.append("mask")
        given.append(random_mask(choose, (B, H, T, S), dtype))
    if "mask" in options:
        limits["mask"] = random_mask(choose, (B, H, T, S), None)
    kept = None
    if rate:
        torch.manual_seed(case)
        kept = kept_of(dropout_seed(inputs[0], rate), (B, H, T, S), rate)
    scale, masks = choose.choice([0.25, 0.5]), []

    def fused(q, k, v, *more):
        torch.manual_seed(case)
        given = {**limits, **dict(zip(names, more, strict=True)), "dropout": rate, "scale": scale}
        if "bias" in options and group > 1:  # of another type than the queries
            given["mask"] = given["mask"].to(FP16 if dtype == BF16 else BF16)
        masks.append(given.get("mask"))
        return rela.attend(q, k, v, backend="triton", **given)

    def plain(q, k, v, *more):
        weights = rela.attention_weights(q, k, scale=scale, **limits, **dict(zip(names, more, strict=True)))
        if kept is not None:
            weights = weights * kept.to(weights.dtype)
        return weights @ v.repeat_interleave(group, dim=1)

    assert_as_exact_as(fused, plain, *inputs, *given[3:], given=given)
    whole = "bias" not in options or (masks[0].shape[2:] == (T, S) and 0 not in masks[0].stride()[2:])
    return "hopper" if structure.on_hopper and whole else "plain"


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_random_combinations_of_all_options(structure, calls):
    """The public call: lengths, starts, window, mask, bias, groups, θ, dropout, type, strides, both head sizes."""
    expected = []
    for case in range(CASES_OF_A_STRUCTURE):
        try:
            served = assert_right(structure, 100 * STRUCTURES.index(structure) + case)
        except AssertionError as wrong:
            raise AssertionError(f"case {case}: {wrong}") from wrong
        expected += ["forward", "backward"] if served == "hopper" and hopper.available(torch.device(DEVICE, 0)) else []
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
