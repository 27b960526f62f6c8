"""Fused sparsemax and entmax attention gives what the entmax package gives, whatever limits the keys."""

import random

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.activations import alpha_of
from rela.kernels.attention.functional import simplex_attention, simplex_attention_packed
from tests.kernels.attention.attention_cases import HALF, qkv
from tests.kernels.attention.simplex_cases import KINDS, SCALE, Bisection, equation, simplex_weights
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw, packing_of, seen_by

ONE_TILE, LONGER = 21, 83  # keys of rows that stay in registers, and of rows that are computed again in each step


def assert_right(q, k, v, activation, **visibility):
    """The kernel against the package: output and gradients."""
    assert_as_exact_as(
        lambda *x: simplex_attention(*x, scale=SCALE, activation=activation, **visibility),
        lambda *x: equation(*x, activation, **visibility),
        q,
        k,
        v,
    )


@pytest.mark.parametrize("activation", KINDS)
def test_bisection_gives_what_the_package_gives(activation):
    """The judge of a machine without the package is as good."""
    pytest.importorskip("entmax")
    scores = draw(7, 33, seed=3).double().requires_grad_()
    slope = draw(7, 33, seed=4).double()
    outcomes = []
    for weights in (simplex_weights(scores, activation), Bisection.apply(scores, alpha_of(activation))):
        outcomes.append((weights, *torch.autograd.grad(weights, scores, slope)))
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("S", [ONE_TILE, LONGER])
@pytest.mark.parametrize("activation", KINDS)
def test_weights_and_gradients_are_those_of_the_package(activation, S):
    assert_right(*qkv(B=1, H=2, T=17, S=S, D=20, Hk=1), activation)


LIMITS = {
    "causal": {"causal": True},
    "lengths": {"key_lengths": torch.tensor([33, 0])},
    "starts": {"key_starts": torch.tensor([0, 21]), "causal": True},
    "window": {"window": (7, 4)},
    "mask": {"mask": "random"},
    "all": {"window": (20, 1), "key_starts": torch.tensor([3, 30]), "key_lengths": torch.tensor([33, 31])},
}


@pytest.mark.parametrize("limits", LIMITS)
def test_keys_outside_the_limits_weigh_nothing(limits):
    """Lengths without keys, windows that leave a query nothing, masks with empty rows: zeros, and zero gradients."""
    given = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in LIMITS[limits].items()}
    q, k, v = qkv(B=2, H=2, T=9, S=33, D=16)
    if "mask" in given:
        given["mask"] = draw(2, 1, 9, 33, seed=5) > 0.3
        given["mask"][0, 0, 4] = False
    assert_right(q, k, v, KINDS[len(limits) % 3], **given)
    out = simplex_attention(q, k, v, scale=SCALE, activation="entmax15", **given)
    empty = ~seen_by(q, k, **given).any(-1)
    assert (out[empty] == 0).all()
    assert (out[~empty] != 0).any()


@pytest.mark.parametrize("activation", KINDS)
def test_equal_scores_share_the_weight(activation):
    q, k, v = qkv(B=1, H=1, T=3, S=ONE_TILE, D=16)
    out = simplex_attention(q * 0, k, v, scale=SCALE, activation=activation)
    torch.testing.assert_close(out, v.mean(2, keepdim=True).expand_as(out))
    k = torch.cat([k[:, :, :1].expand(-1, -1, 4, -1), -k[:, :, :1] * 9], 2)  # four equal keys, and one far below them
    q = k[:, :, :1] * 10
    out = simplex_attention(q, k, v[:, :, :5], scale=SCALE, activation=activation)
    torch.testing.assert_close(out, v[:, :, :4].mean(2, keepdim=True))


@pytest.mark.parametrize("activation", KINDS)
def test_scores_of_ten_thousand(activation):
    """The largest takes all, exactly, or two equal ones do; whole numbers, so that no score is rounded."""
    k = torch.arange(ONE_TILE, device=DEVICE)[:, None].repeat(1, 16).float()[None, None]
    k[0, 0, 5] = k[0, 0, 20]
    q = torch.tensor([-125.0, 125.0, 0.25], device=DEVICE)[:, None].repeat(1, 16)[None, None]
    q, k, v = q.requires_grad_(), k.requires_grad_(), draw(1, 1, ONE_TILE, 16, seed=1).requires_grad_()
    out = simplex_attention(q, k, v, scale=0.25, activation=activation)
    assert torch.equal(out[0, 0, 0], v[0, 0, 0])
    torch.testing.assert_close(out[0, 0, 1], (v[0, 0, 5] + v[0, 0, 20]) / 2)
    plain = equation(*(x.detach().double() for x in (q, k, v)), activation, scale=0.25)
    torch.testing.assert_close(out.double(), plain, rtol=0, atol=1e-5)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.square().sum(), (q, k, v)))


def test_hidden_memory_may_hold_anything_and_a_score_that_is_nan_shows():
    q, k, v = qkv(B=1, H=1, T=5, S=ONE_TILE, D=16)
    lengths = torch.tensor([13], device=DEVICE)
    options = {"scale": SCALE, "activation": "sparsemax"}
    wanted = simplex_attention(q, k, v, key_lengths=lengths, **options)
    hidden = (torch.arange(ONE_TILE, device=DEVICE) >= 13)[:, None]
    k, v = (x.masked_fill(hidden, float("nan")) for x in (k, v))
    assert torch.equal(simplex_attention(q, k, v, key_lengths=lengths, **options), wanted)
    q = q.clone()
    q[0, 0, 2, 0] = float("nan")
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    out = simplex_attention(q, k, v, key_lengths=lengths, **options)
    assert out.isnan().all(-1)[0, 0].tolist() == [False, False, True, False, False]
    dq, _, dv = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert dq.isnan().all(-1)[0, 0].tolist() == [False, False, True, False, False]
    assert dv.isnan().all(-1)[0, 0].tolist() == [True] * 13 + [False] * 8


def test_a_row_does_not_depend_on_those_beside_it():
    """Rows of one tile take different numbers of steps; each stops by itself."""
    q, k, v = qkv(B=1, H=1, T=9, S=ONE_TILE, D=16)
    q = q * torch.linspace(0, 4, 9, device=DEVICE)[:, None]
    options = {"scale": SCALE, "activation": "entmax:1.3"}
    together = simplex_attention(q, k, v, **options)
    for t in range(9):
        assert torch.equal(simplex_attention(q[:, :, t : t + 1], k, v, **options), together[:, :, t : t + 1])


def test_half_precision():
    assert_right(*qkv(B=1, H=1, T=20, S=40, D=16, dtype=HALF), "entmax15", causal=True)


@pytest.mark.parametrize("S", [ONE_TILE, LONGER])
def test_dropout_drops_weights_and_not_keys(S):
    """The weights themselves, by values that are the unit vectors: kept ones are larger by 1/(1 − rate)."""
    q, k, _ = qkv(B=1, H=2, T=9, S=S, D=128)
    unit = torch.eye(S, 128, device=DEVICE).expand(1, 2, S, 128)
    whole = simplex_attention(q, k, unit, scale=0.05, activation="entmax15")
    thinned = simplex_attention(q, k, unit, scale=0.05, activation="entmax15", dropout=0.4, seed=3)
    kept = (thinned != 0)[..., :S]
    torch.testing.assert_close(thinned, torch.where(thinned != 0, whole / 0.6, 0.0))
    assert 0.3 < kept.sum() / (whole != 0).sum() < 0.85
    v = draw(1, 2, S, 128, seed=7)
    assert_as_exact_as(
        lambda *x: simplex_attention(*x, scale=0.05, activation="entmax15", dropout=0.4, seed=3),
        lambda *x: equation(*x, "entmax15", scale=0.05, kept=kept / 0.6),
        q,
        k,
        v,
    )


def one_by_one(q, k, v, lengths_q, lengths_k, **options):
    """Each sequence alone through the equation; rows after the last one are zero."""
    parts = []
    for rows_q, rows_k, rows_v in zip(
        q.split([*lengths_q, len(q) - sum(lengths_q)])[:-1],
        *(x.split([*lengths_k, len(x) - sum(lengths_k)])[:-1] for x in (k, v)),
        strict=True,
    ):
        alone = (x.transpose(0, 1).unsqueeze(0) for x in (rows_q, rows_k, rows_v))
        parts.append(equation(*alone, **options)[0].transpose(0, 1) if len(rows_k) else rows_q * 0)
    return torch.cat([*parts, q[sum(lengths_q) :] * 0])


SELF = ([5, 33, 1, 0, 17], [5, 33, 1, 0, 17])
CROSS = ([3, 20, 0, 1, 9], [33, 2, 5, 0, 70])  # a query without keys, keys without a query


@pytest.mark.parametrize(("lengths_q", "lengths_k", "causal"), [(*SELF, True), (*SELF, False), (*CROSS, False)])
def test_each_packed_sequence_gives_what_it_gives_alone(lengths_q, lengths_k, causal):
    q = draw(sum(lengths_q) + 9, 2, 16, seed=1)
    k, v = (draw(sum(lengths_k) + 9, 1, 16, seed=seed) for seed in (2, 3))
    # the longest length chooses tiles: wrong, it costs speed and no correctness
    queries, keys = packing_of(lengths_q), packing_of(lengths_k, longest=1)
    for activation in KINDS[: 2 - causal]:
        options = {"scale": SCALE, "activation": activation, "causal": causal}
        assert_as_exact_as(
            lambda *x, options=options: simplex_attention_packed(*x, queries, keys, **options),
            lambda *x, options=options: one_by_one(*x, lengths_q, lengths_k, **options),
            q,
            k,
            v,
        )


def test_what_lies_after_the_last_sequence_does_not_matter():
    rows = [draw(40, 2, 16, seed=seed) for seed in range(4)]
    packing = packing_of([7, 13])

    def answers():
        q, k, v, d_out = (x.clone() for x in rows)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = simplex_attention_packed(*inputs, packing, packing, scale=SCALE, activation="entmax15")
        return out, *torch.autograd.grad(out, inputs, d_out)

    clean = answers()
    for x in rows:
        x[20:] = float("nan")
    for got, wanted in zip(answers(), clean, strict=True):
        assert torch.equal(got, wanted)
        assert (got[20:] == 0).all()


def test_the_exponents_that_have_a_kernel():
    assert [alpha_of(name) for name in (*KINDS, "entmax:2", "entmax:1.05")] == [2.0, 1.5, 1.3, 2.0, 1.05]
    assert [alpha_of(name) for name in ("relu", "entmax:1.01", "entmax:2.1", "topk:4")] == [None] * 4


TYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.gpu
@pytest.mark.parametrize("case", range(120))
def test_random_cases(case):
    """Lengths, heads, head sizes, types and limits at random, the same on every machine."""
    choose, generator = random.Random(case), torch.Generator().manual_seed(case)
    dtype, activation = choose.choice(TYPES), choose.choice([*KINDS, "entmax:1.1", "entmax:1.8"])
    D, group = choose.choice([32, 60, 64, 64, 80, 128, 256]), choose.choice([1, 1, 2, 4])
    B, Hk = choose.randint(1, 2), choose.randint(1, 2)
    longest = 120 if dtype == torch.float32 else 500  # of many scores one lies where the gradient jumps
    T, S = choose.randint(1, longest), choose.choice([choose.randint(1, 128), choose.randint(1, longest)])
    visibility = {"causal": choose.random() < 0.5}
    if choose.random() < 0.4:
        visibility["key_lengths"] = torch.randint(0, S + 1, (B,), generator=generator).to(DEVICE)
    if choose.random() < 0.3:
        visibility["key_starts"] = torch.randint(0, S + 1, (B,), generator=generator).to(DEVICE)
    if choose.random() < 0.3:
        visibility["window"] = (choose.randint(0, 60), choose.choice([None, 0, 30]))
    if choose.random() < 0.3:
        shape = [n if choose.random() < 0.7 else 1 for n in (B, Hk * group, T, S)]
        visibility["mask"] = (torch.rand(shape, generator=generator) < 0.6).to(DEVICE)
    q, k, v = (
        torch.randn(B, heads, rows, D, generator=generator).to(dtype).to(DEVICE)
        for heads, rows in ((Hk * group, T), (Hk, S), (Hk, S))
    )
    scale = choose.choice([0.5, 1.0, 3.0]) * D**-0.5
    # The gradient is p^(2-α), steep where p is nearly zero: the error in float32 is that of one such weight, and three
    # TF32 products round another one than a float32 product does. In half precision all are rounded much more.
    slack = 4.0 if dtype == torch.float32 else 2.0
    assert_as_exact_as(
        lambda *x: simplex_attention(*x, scale=scale, activation=activation, **visibility),
        lambda *x: equation(*x, activation, scale=scale, **visibility),
        q,
        k,
        v,
        slack=slack,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("case", range(40))
def test_random_packed_cases(case):
    choose = random.Random(1000 + case)
    dtype, D, causal = choose.choice(TYPES), choose.choice([32, 64, 60, 128]), choose.random() < 0.5
    B, longest = choose.randint(1, 20), choose.choice([10, 60, 200])
    lengths_q = [choose.randint(0, longest) for _ in range(B)]
    lengths_k = lengths_q if choose.random() < 0.5 else [choose.randint(0, longest) for _ in range(B)]
    padding = choose.randint(0, 200)
    q = draw(sum(lengths_q) + padding, 4, D, dtype=dtype, seed=case)
    k, v = (draw(sum(lengths_k) + padding, 2, D, dtype=dtype, seed=case + seed) for seed in (100, 200))
    options = {"scale": D**-0.5, "activation": choose.choice(KINDS), "causal": causal}
    assert_as_exact_as(
        lambda *x: simplex_attention_packed(*x, packing_of(lengths_q), packing_of(lengths_k), **options),
        lambda *x: one_by_one(*x, lengths_q, lengths_k, **options),
        q,
        k,
        v,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", KINDS)
def test_rows_of_a_thousand_keys(activation, dtype, causal):
    q, k, v = (draw(2, 2, rows, 64, dtype=dtype, seed=seed) for seed, rows in enumerate((1001, 1024, 1024)))
    assert_as_exact_as(
        lambda *x: simplex_attention(*x, scale=0.125, activation=activation, causal=causal),
        lambda *x: equation(*x, activation, scale=0.125, causal=causal),
        q,
        k,
        v,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("activation", KINDS)
@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_rows_sum_to_one(activation, spread):
    """Of any spread of scores, in every type: values of one are their own mean."""
    for dtype in TYPES:
        q, k = (draw(1, 2, rows, 64, dtype=dtype, seed=rows) for rows in (700, 900))
        out = simplex_attention(q, k, torch.ones_like(k), scale=spread / 8, activation=activation)
        step = 1e-5 if dtype == torch.float32 else torch.finfo(dtype).eps
        torch.testing.assert_close(out, torch.ones_like(out), rtol=0, atol=step)
