"""Decoding with a norm in one launch gives what the equation gives, however the keys are cut."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from rela.attention import norms
from rela.kernels.attention import decode_norm
from rela.kernels.attention.decode import planned_parts
from rela.kernels.attention.decode_norm import by_operator, decode_with_norm
from rela.kernels.attention.merged_norm import Norm, forward_of
from rela.kernels.attention.problem import MEMOS, Problem
from tests.kernels.exactness import ACTIVATIONS, DEVICE, draw, reference, seen_by

EPS, SCALE = 1e-6, 0.3


def parameters(width: int, gated: bool, dtype: torch.dtype = torch.float32) -> Norm:
    return Norm(draw(width, dtype=dtype, seed=11), draw(width, dtype=dtype, seed=12) if gated else None, EPS)


def narrow() -> Norm:
    return parameters(40, gated=True)


def problem_of(q, k, v, lengths=None, threshold=None, activation="relu") -> Problem:
    return Problem(q, k, v, threshold, lengths, None, None, None, None, SCALE, activation, False, 0.0)


def equation(q, k, v, norm: Norm, threshold=None, activation="relu", **limits):
    context = reference(q, k, v, threshold, scale=SCALE, activation=activation, seen=seen_by(q, k, **limits))
    return norms.rms_norm(context.transpose(1, 2).flatten(2), *norm)


def assert_exact(got, q, k, v, norm: Norm, threshold=None, **options) -> None:
    """Within twice the error of the plain equation in the same precision."""
    double = Norm(norm.gain.double(), None if norm.gate is None else norm.gate.double(), norm.eps)
    theta = None if threshold is None else threshold.double()
    exact = equation(*(x.double() for x in (q, k, v)), double, theta, **options)
    error = (equation(q, k, v, norm, threshold, **options).double() - exact).abs().max()
    assert (got.double() - exact).abs().max() <= 2 * error + 1e-6


@pytest.fixture
def cut(monkeypatch) -> Callable[[int], list[str]]:
    """A function that has the keys cut into some parts; the list it returns says when a sum and a norm ran apart."""
    MEMOS.clear()

    def cut_into(splits: int) -> list[str]:
        apart: list[str] = []

        def noted(*arguments):
            apart.append("apart")
            return forward_of(*arguments)

        monkeypatch.setattr(decode_norm, "planned_parts", lambda problem: planned_parts(problem, splits))
        monkeypatch.setattr(decode_norm, "forward_of", noted)
        return apart

    return cut_into


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("T", [1, 3])
def test_it_is_the_equation(activation: str, T: int, gated: bool):
    q, k, v = draw(2, 4, T, 24, seed=1), draw(2, 2, 333, 24, seed=2), draw(2, 2, 333, 24, seed=3)
    lengths, threshold, norm = torch.tensor([333, 150], device=DEVICE), draw(4, seed=4), parameters(96, gated)
    got = decode_with_norm(problem_of(q, k, v, lengths, threshold, activation), norm, merged=True)
    assert got.shape == (2, T, 96)
    assert_exact(got, q, k, v, norm, threshold, activation=activation, key_lengths=lengths)


@pytest.mark.parametrize("splits", [1, 2, 3, 7])
def test_parts_add_up(splits: int, cut):
    """700 keys in tiles of 128 have at most six parts, which one turn loads."""
    apart = cut(splits)
    q, k, v, norm = draw(3, 2, 1, 20, seed=1), draw(3, 2, 700, 20, seed=2), draw(3, 2, 700, 20, seed=3), narrow()
    assert_exact(decode_with_norm(problem_of(q, k, v), norm, merged=True), q, k, v, norm)
    assert not apart


@pytest.mark.parametrize(("numbers", "alone"), [(4 * 64, False), (64, False), (32, True)])
def test_a_row_that_needs_several_turns_or_too_many(numbers: int, alone: bool, cut, monkeypatch):
    """Four parts of 40 numbers: a program holds all of them, one after the other, or not even one."""
    apart = cut(4)
    monkeypatch.setattr(decode_norm, "MOST_NUMBERS", numbers)
    q, k, v, norm = draw(1, 2, 1, 20, seed=1), draw(1, 2, 500, 20, seed=2), draw(1, 2, 500, 20, seed=3), narrow()
    assert_exact(decode_with_norm(problem_of(q, k, v), norm, merged=True), q, k, v, norm)
    assert bool(apart) == alone


def test_more_turns_than_pay_are_left_to_two_launches(cut, monkeypatch):
    apart = cut(4)
    monkeypatch.setattr(decode_norm, "MOST_NUMBERS", 64)
    monkeypatch.setattr(decode_norm, "MOST_TURNS", 3)
    q, k, v, norm = draw(1, 2, 1, 20, seed=1), draw(1, 2, 500, 20, seed=2), draw(1, 2, 500, 20, seed=3), narrow()
    assert_exact(decode_with_norm(problem_of(q, k, v), norm, merged=True), q, k, v, norm)
    assert apart


def test_half_precision_beside_parameters_in_float32():
    q, k, v = (draw(2, 2, rows, 32, dtype=torch.float16, seed=rows) for rows in (1, 90, 90))
    norm = parameters(64, gated=True)
    got = decode_with_norm(problem_of(q, k, v), norm, merged=True)
    assert got.dtype == torch.float16
    assert_exact(got, q, k, v, norm)


def test_a_sum_that_float16_cannot_hold_is_normalised_all_the_same():
    q, k = torch.full((1, 1, 1, 16), 60.0), torch.full((1, 1, 4096, 16), 60.0)
    q, k = q.half().to(DEVICE), k.half().to(DEVICE)
    norm = Norm(torch.ones(16, device=DEVICE), None, EPS)
    out = decode_with_norm(problem_of(q, k, k), norm, merged=True)
    torch.testing.assert_close(out, torch.ones_like(out))


def test_heads_are_merged_or_apart():
    q, k, v, norm = draw(2, 2, 1, 20, seed=1), draw(2, 2, 90, 20, seed=2), draw(2, 2, 90, 20, seed=3), narrow()
    merged, apart = (decode_with_norm(problem_of(q, k, v), norm, merged=way) for way in (True, False))
    assert apart.shape == (2, 1, 2, 20)
    assert torch.equal(merged, apart.flatten(2))


def test_no_keys_give_zeros_and_no_rows_nothing():
    q, k, norm = draw(2, 2, 1, 20, seed=1), draw(2, 2, 90, 20, seed=2), narrow()
    assert not decode_with_norm(problem_of(q, k[:, :, :0], k[:, :, :0]), norm, merged=True).any()
    lengths = torch.tensor([0, 90], device=DEVICE)
    out = decode_with_norm(problem_of(q, k, k, lengths), norm, merged=True)
    assert not out[0].any()
    assert out[1].any()
    assert decode_with_norm(problem_of(q[:0], k[:0], k[:0]), norm, merged=True).shape == (0, 1, 40)


def test_a_norm_of_another_width_is_refused():
    q, k = draw(1, 2, 1, 20, seed=1), draw(1, 2, 90, 20, seed=2)
    with pytest.raises(ValueError, match=r"gain has shape \[64\], but z has width 40"):
        decode_with_norm(problem_of(q, k, k), parameters(64, gated=True), merged=True)


@pytest.mark.parametrize("gated", [False, True])
def test_the_operator_keeps_its_contract(gated: bool, memory_as_it_is):
    q, k, norm = draw(2, 4, 1, 20, seed=1), draw(2, 2, 90, 20, seed=2), parameters(80, gated)
    limits = torch.tensor([90, 40], device=DEVICE), torch.tensor([3, 0], device=DEVICE)
    arguments = q, k, k, draw(4, seed=4), *limits, norm.gain, norm.gate, 60, SCALE, "relu", False, EPS
    torch.library.opcheck(torch.ops.rela.normalised_decode.default, arguments)


def test_the_operator_gives_what_eager_mode_gives():
    q, k, norm = draw(2, 2, 1, 20, seed=1), draw(2, 2, 90, 20, seed=2), narrow()
    options = {"scale": SCALE, "activation": "relu", "causal": False, "threshold": None, "left": None}
    got = by_operator(q, k, k, norm, **options, key_lengths=None, key_starts=None)
    assert torch.equal(got, decode_with_norm(problem_of(q, k, k), norm, merged=False))
