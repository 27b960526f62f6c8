"""The Hopper kernels on the device they are for, against the equations and the plain kernels' choice of tiles."""

import random
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

import rela
from rela.attention import norms
from rela.kernels.attention.backward import backward
from rela.kernels.attention.decode import Split, decode
from rela.kernels.attention.decode_norm import decode_with_norm
from rela.kernels.attention.forward import forward
from rela.kernels.attention.functional import (
    relu_attention,
    relu_attention_decode,
    relu_attention_packed,
    relu_attention_with_statistics,
)
from rela.kernels.attention.merged_norm import Norm, forward_of
from rela.kernels.attention.problem import Problem
from rela.kernels.hopper import dispatch as hopper
from tests.kernels.exactness import (
    DEVICE,
    assert_as_exact_as,
    draw,
    packing_of,
    recorded,
    reference,
    run,
    seen_by,
    weights_of,
)

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
    monkeypatch.setattr(hopper, "SHORTEST", 1)
    monkeypatch.setattr(hopper, "FEWEST_DECODE_KEYS", 1)


def on_a_grid(*shape: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Multiples of 1/4 from −1 to 1: products and their sums are exact, so no score near zero changes its sign."""
    return (torch.randint(-4, 5, shape, generator=generator) / 4).to(dtype).to(DEVICE)


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(80))
def test_random_cases(case, calls):
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype, D = choose.choice(TYPES), choose.choice([64, 128, 40, 80, 96, 136, 160, 192, 200, 256])
    group = choose.choice([1, 1, 2, 3])
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


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(24))
def test_statistics_of_random_cases(case, calls):
    """On a grid scores are exact, so are the statistics, and many weights are equally large."""
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype, D, group = choose.choice(TYPES), choose.choice([64, 128, 112]), choose.choice([1, 2])
    B, Hk = choose.randint(1, 3), choose.randint(1, 3)
    T, S = (choose.choice([choose.randint(1, 40), choose.randint(1, 700), 128, 1024]) for _ in range(2))
    causal = choose.random() < 0.5
    q = on_a_grid(B, Hk * group, T, D, dtype=dtype, generator=generator)
    k, v = (on_a_grid(B, Hk, S, D, dtype=dtype, generator=generator) for _ in range(2))
    threshold = on_a_grid(Hk * group, dtype=dtype, generator=generator) * 8 if choose.random() < 0.6 else None
    out, nonzeros, argmax, largest = relu_attention_with_statistics(
        q, k, v, scale=0.25, causal=causal, threshold=threshold
    )
    seen = seen_by(q, k, causal=causal)
    exact = None if threshold is None else threshold.double()
    weights = weights_of(q.double(), k.double(), exact, scale=0.25, seen=seen)
    top, _ = weights.max(-1)
    first = (weights == top[..., None]).int().argmax(-1)
    assert torch.equal(out, relu_attention(q, k, v, scale=0.25, causal=causal, threshold=threshold))
    assert torch.equal(nonzeros.long(), (weights != 0).sum(-1))
    assert torch.equal(argmax.long(), first.masked_fill(top == 0, -1))
    assert torch.equal(largest.double(), top)
    assert calls == ["forward", "forward"]


@pytest.mark.parametrize("limit", ["mask", "lengths", "starts", "window"])
def test_statistics_under_limits_come_from_the_plain_kernels(limit, calls):
    q, k, v = (draw(1, 2, 300, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    limits: dict[str, object] = {
        "mask": {"mask": draw(1, 1, 300, 300, seed=9) > 0},
        "lengths": {"key_lengths": torch.tensor([200], device=DEVICE)},
        "starts": {"key_starts": torch.tensor([200], device=DEVICE)},
        "window": {"window": (20, 20)},
    }[limit]
    _, nonzeros, argmax, _ = relu_attention_with_statistics(q, k, v, scale=0.125, **limits)
    weights = weights_of(q.double(), k.double(), scale=0.125, seen=seen_by(q, k, **limits))
    assert ((nonzeros - (weights != 0).sum(-1)).abs() <= 1).all()
    assert (argmax == weights.argmax(-1)).float().mean() > 0.99
    assert calls == []


def test_the_largest_weight_is_exact_to_twenty_bits(calls):
    """Gaussian, 4100 keys: the ragged tile, and a largest weight that competes with others close to it."""
    q, k, v = (draw(1, 2, rows, 64, dtype=torch.bfloat16, seed=rows) for rows in (700, 4100, 4100))
    k[:, :, 4099] *= 1.5  # the last key often wins
    _, nonzeros, argmax, largest = relu_attention_with_statistics(q, k, v, scale=0.125)
    weights = weights_of(q.double(), k.double(), scale=0.125)
    top = weights.max(-1).values
    taken = weights.gather(-1, argmax.long()[..., None])[..., 0]
    assert (top - taken).abs().max() <= 2.0**-17 * top.max()
    assert ((largest - top).abs() <= 2.0**-17 * top).all()
    assert ((nonzeros - (weights != 0).sum(-1)).abs() <= 1).all()  # a score of almost nothing may round to either side
    assert (argmax == 4099).any()
    assert calls == ["forward"]


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


# type, head size, queries' heads for one of the keys', threshold: each is a kernel to compile
VARIANTS = [
    (torch.bfloat16, 64, 1, False),
    (torch.bfloat16, 64, 2, True),
    (torch.float16, 64, 1, True),
    (torch.bfloat16, 128, 1, False),
    (torch.float16, 128, 2, False),
    (torch.bfloat16, 160, 2, True),
    (torch.bfloat16, 256, 1, False),
]


def poisoned(rows: torch.Tensor, inside: int) -> torch.Tensor:
    """NaN in all rows behind the last sequence; [1, H, N, D]."""
    return rows.masked_fill((torch.arange(rows.shape[2], device=DEVICE) >= inside)[:, None], float("nan"))


def with_and_without(problem: Problem, d_out: torch.Tensor, monkeypatch) -> list[list[torch.Tensor]]:
    """Context and gradients by the Hopper kernels and by the plain ones."""
    answers = []
    for serves in (hopper.serves, lambda problem, statistics=False: False):
        monkeypatch.setattr(hopper, "serves", serves)
        fresh = replace(problem, memo={})  # which kernels serve is decided once for a problem
        context = forward(fresh)[0]
        gradients = backward(fresh, d_out, deterministic=False)
        answers.append([context, *(x for x in gradients if x is not None)])
    return answers


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(60))
def test_packed_sequences_and_dropout_give_what_the_plain_kernels_give(case, calls, monkeypatch):
    """On a grid every sum is exact, so the two agree to the last bit, whatever lies behind the last sequence."""
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype, D, group, shifted = choose.choice(VARIANTS)
    dropout = choose.choice([0.0, 0.5])  # whose factors, 1 and 2, round nothing
    sequences, longest = choose.choice([(1, 100), (3, 40), (3, 300), (8, 200), (2, 900)])
    lengths_q = [choose.randint(0, longest) for _ in range(sequences)]
    lengths_k = lengths_q if choose.random() < 0.5 else [choose.randint(0, longest) for _ in range(sequences)]
    T, S = (sum(lengths) + choose.choice([1, 64, 300]) for lengths in (lengths_q, lengths_k))
    q, d_out = (on_a_grid(1, 2 * group, T, D, dtype=dtype, generator=generator) for _ in range(2))
    k, v = (on_a_grid(1, 2, S, D, dtype=dtype, generator=generator) for _ in range(2))
    queries, keys = packing_of(lengths_q, T), packing_of(lengths_k, S)
    if packed := choose.random() < 0.8:
        q, d_out = (poisoned(x, sum(lengths_q)) for x in (q, d_out))
        k, v = (poisoned(x, sum(lengths_k)) for x in (k, v))
    threshold = on_a_grid(2 * group, dtype=dtype, generator=generator) if shifted else None
    problem = Problem(
        q,
        k,
        v,
        threshold,
        None,
        None,
        queries if packed else None,
        keys if packed else None,
        torch.tensor(case, device=DEVICE) if dropout else None,
        0.25,
        "relu",
        choose.random() < 0.5,
        dropout,
    )
    ours, plain = with_and_without(problem, d_out, monkeypatch)
    assert calls == ["forward", "backward"]
    for name, one, other in zip(("out", "dq", "dk", "dv"), ours, plain, strict=False):
        assert torch.equal(one, other), name
    torch.testing.assert_close(ours[4:], plain[4:])


# what hides keys, each a kernel to compile
LIMITS = [
    ("mask",),
    ("mask", "causal"),
    ("mask", "lengths"),
    ("mask", "dropout"),
    ("lengths",),
    ("lengths", "causal"),
    ("starts", "causal"),
    ("starts", "lengths", "window"),
    ("window", "causal"),
    ("window", "mask", "starts"),
]


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(40))
def test_masks_lengths_starts_and_windows_give_what_the_plain_kernels_give(case, calls, monkeypatch):
    """On a grid every sum is exact, so the two agree to the last bit, whatever lies outside lengths and starts."""
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype, D, group, shifted = VARIANTS[case % 7]
    limits = LIMITS[case % 10] if case < 10 else LIMITS[choose.randrange(10)]
    B, T, S = choose.randint(1, 3), choose.choice([20, 300, 513, 128]), choose.choice([150, 256, 389, 640])
    q, d_out = (on_a_grid(B, 2 * group, T, D, dtype=dtype, generator=generator) for _ in range(2))
    k, v = (on_a_grid(B, 2, S, D, dtype=dtype, generator=generator) for _ in range(2))
    threshold = on_a_grid(2 * group, dtype=dtype, generator=generator) if shifted else None
    lengths = starts = mask = None
    if "lengths" in limits:
        lengths = torch.randint(0, S + 1, (B,), generator=generator).to(
            DEVICE, choose.choice([torch.int32, torch.int64])
        )
        behind = (torch.arange(S, device=DEVICE) >= lengths[:, None])[:, None, :, None]
        k, v = (x.masked_fill(behind, float("nan")) for x in (k, v))
    if "starts" in limits:
        starts = torch.randint(0, S // 2, (B,), generator=generator).to(DEVICE)
        before = (torch.arange(S, device=DEVICE) < starts[:, None])[:, None, :, None]
        k, v = (x.masked_fill(before, float("nan")) for x in (k, v))
    if "mask" in limits:
        shape = [n if choose.random() < 0.7 else 1 for n in (B, 2 * group, T, S)]
        mask = (torch.rand(shape, generator=generator) < 0.6).to(DEVICE)
        if choose.random() < 0.3:
            mask = mask.expand(B, 2 * group, T, S)
        elif choose.random() < 0.3:
            mask = mask.mT.contiguous().mT
    left, right = (choose.randint(0, 200), choose.choice([None, 70])) if "window" in limits else (None, None)
    problem = Problem(
        q,
        k,
        v,
        threshold,
        lengths,
        mask,
        None,
        None,
        torch.tensor(case, device=DEVICE) if "dropout" in limits else None,
        0.25,
        "relu",
        "causal" in limits,
        0.5 if "dropout" in limits else 0.0,
        starts,
        left,
        right,
    )
    ours, plain = with_and_without(problem, d_out, monkeypatch)
    assert calls == ["forward", "backward"]
    for name, one, other in zip(("out", "dq", "dk", "dv"), ours, plain, strict=False):
        assert torch.equal(one, other), name
    torch.testing.assert_close(ours[4:], plain[4:])


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(20))
def test_float_masks_give_what_the_plain_kernels_give(case, calls, monkeypatch):
    """Multiples of 1/4 and −inf, contiguous, expanded, heads last, of a length that no descriptor takes."""
    choose = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    dtype, D, group, shifted = VARIANTS[case % 5]
    causal, dropout, limited = ((False, 0.0, False), (True, 0.0, False), (False, 0.5, False), (True, 0.0, True))[
        case % 4
    ]
    B, T, S = choose.randint(1, 3), choose.choice([20, 300, 513, 128]), choose.choice([150, 256, 389, 640])
    H = 2 * group
    q, d_out = (on_a_grid(B, H, T, D, dtype=dtype, generator=generator) for _ in range(2))
    k, v = (on_a_grid(B, 2, S, D, dtype=dtype, generator=generator) for _ in range(2))
    threshold = on_a_grid(H, dtype=dtype, generator=generator) if shifted else None
    lengths = torch.randint(0, S + 1, (B,), generator=generator).to(DEVICE) if limited else None
    kind = choose.choice([torch.bfloat16, torch.float16])
    shape = [n if choose.random() < 0.5 else 1 for n in (B, H)]
    bias = on_a_grid(*shape, T, S, dtype=kind, generator=generator)
    bias = bias.masked_fill(torch.rand(bias.shape, generator=generator).to(DEVICE) < 0.2, -torch.inf)
    if case % 3 == 1:
        bias = bias.expand(B, H, T, S)
    elif case % 3 == 2:
        bias = bias.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    problem = Problem(
        q,
        k,
        v,
        threshold,
        lengths,
        bias,
        None,
        None,
        torch.tensor(case, device=DEVICE) if dropout else None,
        0.25,
        "relu",
        causal,
        dropout,
    )
    ours, plain = with_and_without(problem, d_out, monkeypatch)
    assert calls == ["forward", "backward"]
    for name, one, other in zip(("out", "dq", "dk", "dv"), ours, plain, strict=False):
        assert torch.equal(one, other), name
    torch.testing.assert_close(ours[4:], plain[4:])


@pytest.mark.parametrize("D", [64, 128])
def test_a_learned_bias_through_the_public_call_against_the_equation(D, calls):
    """Gaussian, one bias for all batch elements."""
    B, H, T = 2, 4, 1000
    q, k, v = (draw(B, H, T, D, dtype=torch.bfloat16, seed=i) for i in range(3))
    bias = draw(1, H, T, T, dtype=torch.bfloat16, seed=4)
    assert_as_exact_as(
        lambda q, k, v, bias: rela.attend(q, k, v, mask=bias),
        lambda q, k, v, bias: (q @ k.mT * D**-0.5 + bias).relu() @ v,
        q,
        k,
        v,
        bias,
    )
    assert calls == ["forward", "backward"]


@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("which", ["mask", "lengths", "window"])
def test_limits_through_the_public_call_against_the_equation(D, which, calls):
    """Gaussian, many more tiles than processors."""
    B, H, T = 2, 8, 1500
    limits: dict[str, object] = {
        "mask": {"mask": draw(B, 1, T, T, seed=9) > -0.5},
        "lengths": {"key_lengths": torch.tensor([1500, 1111], device=DEVICE), "causal": True},
        "window": {"window": (300, 0), "key_starts": torch.tensor([0, 400], device=DEVICE)},
    }[which]
    q, k, v = (draw(B, H, T, D, dtype=torch.bfloat16, seed=i) for i in range(3))
    assert_as_exact_as(
        lambda q, k, v: rela.attend(q, k, v, **limits),
        lambda q, k, v: reference(q, k, v, scale=D**-0.5, seen=seen_by(q, k, **limits)),
        q,
        k,
        v,
    )
    assert calls == ["forward", "backward"]


@pytest.mark.usefixtures("memory_as_it_is")
def test_a_captured_graph_follows_a_new_mask_and_new_lengths(calls):
    q, k, v, d_out = (draw(2, 2, 640, 64, dtype=torch.bfloat16, seed=i) for i in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    mask, lengths = draw(2, 1, 640, 640, seed=5) > 0, torch.tensor([600, 500], device=DEVICE)

    def step():
        out = rela.attend(*inputs, mask=mask, key_lengths=lengths)
        return out, *torch.autograd.grad(out, inputs, d_out)

    graph, captured = recorded(step)
    mask.copy_(draw(2, 1, 640, 640, seed=6) > 0)
    lengths.copy_(torch.tensor([77, 640], device=DEVICE))
    graph.replay()
    for got, true in zip(captured, step(), strict=True):
        torch.testing.assert_close(got, true, rtol=1e-2, atol=1e-2 * true.abs().max().item())
    assert calls[:2] == ["forward", "backward"]


@pytest.mark.usefixtures("any_length")
def test_dropout_against_the_equation(calls):
    """At a rate whose factor rounds; the mask is the plain kernels', from weights of one and the identity as values."""
    T, S, options = 300, 200, {"dropout": 0.1, "seed": 4}
    ones = torch.ones(1, 2, T, S, device=DEVICE), torch.ones(1, 2, S, S, device=DEVICE)
    kept = relu_attention(*ones, torch.eye(S, device=DEVICE).expand(1, 2, S, S), scale=1 / S, **options)
    assert calls == []
    assert_as_exact_as(
        lambda q, k, v: relu_attention(q, k, v, scale=0.125, **options),
        lambda q, k, v: reference(q, k, v, scale=0.125, kept=kept),
        *(draw(1, 2, rows, 64, dtype=torch.bfloat16, seed=i) for i, rows in enumerate((T, S, S))),
    )
    assert calls == ["forward", "backward"]


@pytest.mark.parametrize("causal", [False, True])
def test_long_documents_against_the_equation(causal, calls):
    lengths, filler = [700, 513, 1200], 87
    q, k, v = (draw(sum(lengths) + filler, 4, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    packing = packing_of(lengths)
    row = torch.arange(sum(lengths) + filler, device=DEVICE)
    document = torch.searchsorted(packing.cu_seqlens[1:], row, right=True)
    seen = (document[:, None] == document) & (document < len(lengths))
    if causal:
        seen = seen.tril()

    def plain(q, k, v):
        heads_first = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        return reference(*heads_first, scale=0.125, seen=seen).squeeze(0).transpose(0, 1)

    assert_as_exact_as(
        lambda q, k, v: relu_attention_packed(q, k, v, packing, packing, scale=0.125, causal=causal), plain, q, k, v
    )
    assert calls == ["forward", "backward"]


def test_the_plain_kernels_differentiate_where_the_order_matters(calls):
    """Dropout, packed: deterministic gradients are those of the same mask."""
    lengths = [600, 700]
    rows = [on_a_grid(1300, 2, 64, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    inputs, d_out = [x.requires_grad_() for x in rows[:3]], rows[3]
    packing = packing_of(lengths)

    def gradients(deterministic: bool) -> tuple[torch.Tensor, ...]:
        out = relu_attention_packed(
            *inputs, packing, packing, scale=0.125, dropout=0.5, seed=3, deterministic=deterministic
        )
        return torch.autograd.grad(out, inputs, d_out)

    for one, other in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(one, other)
    assert calls == ["forward", "backward", "forward"]


@pytest.mark.parametrize(("lengths", "names"), [([30] * 40, []), ([600, 700], ["forward", "backward"])])
def test_sentences_stay_with_the_plain_kernels_and_documents_do_not(lengths, names, calls):
    q, k, v = (draw(sum(lengths), 2, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    packing = packing_of(lengths)
    run(lambda *x: relu_attention_packed(*x, packing, packing, scale=0.125), (q, k, v), q.dtype)
    assert calls == names


@pytest.mark.usefixtures("memory_as_it_is")
def test_a_captured_graph_follows_new_lengths(calls):
    """A static batch: the lengths and the seed change between replays, and filler holds anything."""
    T = 1600
    q, k, v, d_out = (draw(T, 2, 64, dtype=torch.bfloat16, seed=i) for i in range(4))
    packing, seed = packing_of([700, 600, 0], longest=900), torch.tensor(1, device=DEVICE)
    inputs = [x.requires_grad_() for x in (q, k, v)]

    def step():
        out = relu_attention_packed(*inputs, packing, packing, scale=0.125, causal=True, dropout=0.1, seed=seed)
        return out, *torch.autograd.grad(out, inputs, d_out)

    graph, captured = recorded(step)
    with torch.no_grad():
        packing.cu_seqlens.copy_(packing_of([300, 800, 450]).cu_seqlens)
        seed.fill_(2)
        for x in (*inputs, d_out):
            x[1550:] = float("nan")
    graph.replay()
    for got, true in zip(captured, step(), strict=True):
        assert got[1550:].abs().max() == 0
        torch.testing.assert_close(got, true, rtol=1e-2, atol=1e-2 * true.abs().max().item())
    assert calls[:2] == ["forward", "backward"]


@pytest.mark.parametrize("change", ["deterministic", "leaky", "bias", "rarely kept", "float32", "short", "unaligned"])
def test_everything_else_stays_with_the_plain_kernels(change, calls):
    dtype = torch.float32 if change == "float32" else torch.bfloat16
    T = 100 if change == "short" else 600
    q, k, v = (draw(1, 2, T, 64 + (change == "unaligned"), dtype=dtype, seed=i)[..., :64] for i in range(3))
    options: dict[str, object] = {
        "deterministic": {"deterministic": True},
        "leaky": {"activation": "leaky_relu"},
        "bias": {"mask": draw(1, 1, T, T)},  # of 32 bits
        "rarely kept": {"dropout": 0.99},
    }.get(change, {})
    run(lambda *x: relu_attention(*x, scale=0.125, **options), (q, k, v), dtype)
    assert calls == (["forward"] if change == "deterministic" else [])


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(24))
def test_decoding_of_random_cases(case, calls):
    """As exact as the plain kernel, which has been held to the equation, however the keys are split."""
    choose = random.Random(case)
    dtype, D = choose.choice(TYPES), choose.choice([64, 128])
    group, T = choose.choice([(1, 1), (1, 1), (4, 1), (8, 1), (2, 3)])
    B, Hk = choose.randint(1, 4), choose.randint(1, 4)
    S = choose.choice([choose.randint(1, 200), choose.randint(1, 5000), 64, 4096])
    q = draw(B, Hk * group, T, D, dtype=dtype, seed=case)
    k, v = (draw(B, S + 3, Hk, D, dtype=dtype, seed=case + i).transpose(1, 2)[:, :, :S] for i in (100, 200))
    threshold = draw(Hk * group, seed=case + 300) if choose.random() < 0.7 else None
    lengths = torch.tensor([choose.randint(0, S) for _ in range(B)], device=DEVICE) if choose.random() < 0.5 else None
    problem = Problem(q, k, v, threshold, lengths, None, None, None, None, D**-0.5, "relu", False, 0.0)
    exact = None if threshold is None else threshold.double()
    seen = seen_by(q, k, key_lengths=lengths)
    true = reference(*(x.double() for x in (q, k, v)), exact, scale=D**-0.5, seen=seen)
    allowed = 2 * (decode(problem, split=Split()).double() - true).abs().max() + 1e-6
    assert calls == []
    for splits in (None, 1, 1000):
        assert (decode(problem, splits).double() - true).abs().max() <= allowed
    assert calls == ["decode"] * 3


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("case", range(12))
def test_decoding_with_a_norm_of_random_cases(case, calls):
    """As exact as the plain kernel with the norm's own, or more: the sum is not rounded between the two."""
    choose = random.Random(case)
    dtype, D = choose.choice(TYPES), choose.choice([64, 128])
    group, T = choose.choice([(1, 1), (4, 1), (8, 1), (2, 3)])
    B, Hk = choose.randint(1, 4), choose.choice([1, 2, 4, 16])
    S, width = choose.choice([choose.randint(64, 5000), 4096, 40000]), Hk * group * D
    q = draw(B, Hk * group, T, D, dtype=dtype, seed=case)
    k, v = (draw(B, S, Hk, D, dtype=dtype, seed=case + i).transpose(1, 2) for i in (100, 200))
    lengths = torch.tensor([choose.randint(0, S) for _ in range(B)], device=DEVICE) if choose.random() < 0.5 else None
    gate = draw(width, dtype=dtype, seed=case + 400) if choose.random() < 0.7 else None
    norm = Norm(draw(width, dtype=dtype, seed=case + 300), gate, 1e-6)
    problem = Problem(q, k, v, None, lengths, None, None, None, None, D**-0.5, "relu", False, 0.0)
    context = reference(*(x.double() for x in (q, k, v)), scale=D**-0.5, seen=seen_by(q, k, key_lengths=lengths))
    double = norm.gain.double(), None if gate is None else gate.double(), norm.eps
    true = norms.rms_norm(context.transpose(1, 2).flatten(2), *double)
    apart = forward_of(problem, norm, True)(decode(problem, split=Split()), *norm)
    assert calls == []
    allowed = 2 * (apart.double() - true).abs().max() + 1e-6
    for _ in range(2):
        assert (decode_with_norm(problem, norm, True).double() - true).abs().max() <= allowed
    assert calls == ["decode"] * 2


def test_rows_of_v_without_weight_are_never_read(calls):
    q, k, v = (draw(1, 2, rows, 64, dtype=torch.bfloat16, seed=rows) for rows in (1, 3000, 3000))
    scores = (q.double() @ k.double().mT)[:, :, 0]
    wanted = relu_attention_decode(q, k, v, scale=0.125)
    poisoned = v.masked_fill((scores < -1e-3)[..., None], float("nan"))
    assert torch.equal(relu_attention_decode(q, k, poisoned, scale=0.125), wanted)
    assert calls == ["decode"] * 2


def test_an_expanded_gradient():
    """The gradient of a sum is one number seen everywhere, which the tensor memory accelerator cannot address."""
    q, k, v = (draw(1, 2, 640, 64, dtype=torch.bfloat16, seed=i).requires_grad_() for i in range(3))
    relu_attention(q, k, v, scale=0.125).sum().backward()
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    reference(*exact, scale=0.125).sum().backward()
    for x, true in zip((q, k, v), exact, strict=True):
        assert (x.grad.double() - true.grad).abs().max() <= 0.02 * true.grad.abs().max()


def test_a_contiguous_gradient_at_an_odd_address():
    """As a view of a flat buffer may be: the tensor memory accelerator wants multiples of 16 bytes."""
    q, k, v = (draw(1, 2, 640, 64, dtype=torch.bfloat16, seed=i).requires_grad_() for i in range(3))
    aligned = draw(1, 2, 640, 64, dtype=torch.bfloat16, seed=3)
    odd = torch.zeros(aligned.numel() + 3, dtype=aligned.dtype, device=DEVICE)[3:].view_as(aligned).copy_(aligned)
    out = relu_attention(q, k, v, scale=0.125)
    wanted = torch.autograd.grad(out, (q, k, v), aligned, retain_graph=True)
    for got, true in zip(torch.autograd.grad(out, (q, k, v), odd), wanted, strict=True):
        torch.testing.assert_close(got, true, rtol=1e-2, atol=1e-2 * true.abs().max().item())


def test_nan_stays_in_its_rows():
    q, k, v = (draw(1, 1, 640, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    q[0, 0, 100] = float("nan")
    problem = Problem(q, k, v, None, None, None, None, None, None, 0.125, "relu", False, 0.0)
    out = hopper.planned_forward(problem)(problem, None)
    assert out[0, 0, 100].isnan().all()
    assert out.isnan().any(-1).sum() == 1


@pytest.mark.usefixtures("memory_as_it_is")
def test_a_cuda_graph_captures_both(calls):
    q, k, v = (draw(2, 3, 640, 128, dtype=torch.bfloat16, seed=i).requires_grad_() for i in range(3))
    d_out = draw(2, 3, 640, 128, dtype=torch.bfloat16, seed=4)

    def step():
        out = relu_attention(q, k, v, scale=0.1, causal=True)
        return out, *torch.autograd.grad(out, (q, k, v), d_out)

    graph, captured = recorded(step)
    with torch.no_grad():
        q.copy_(draw(2, 3, 640, 128, dtype=torch.bfloat16, seed=9))
    graph.replay()
    for got, true in zip(captured, step(), strict=True):
        torch.testing.assert_close(got, true, rtol=1e-2, atol=1e-2 * true.abs().max().item())
    assert calls[:2] == ["forward", "backward"]
