"""The fused end of a sublayer is LayerNorm(x + dropout(change)), at any width, in any precision."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from rela.kernels.attention.problem import processors
from rela.kernels.layers.residual_norm import PROGRAMS, residual_norm
from rela.kernels.layers.row_blocks import ROWS
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw

EPS = 1e-5


def fused(x, change, weight, bias, dropout=0.0, seed=None):
    return residual_norm(x, change, weight, bias, dropout, seed, EPS)


def equation(x, change, weight, bias, factors=1.0):
    """Arithmetic in at least float32, as promised."""
    precise = torch.promote_types(change.dtype, torch.float32)
    total = x.to(precise) + change.to(precise) * factors
    return F.layer_norm(total, x.shape[-1:], weight.to(precise), bias.to(precise), EPS).to(change.dtype)


def inputs(*shape, dtype=torch.float32):
    width = shape[-1]
    return [
        draw(*shape, dtype=dtype, seed=1),
        draw(*shape, dtype=dtype, seed=2),
        draw(width, dtype=dtype, seed=3),
        draw(width, dtype=dtype, seed=4),
    ]


def factors_of(shape, dropout, seed):
    """0 or 1 / (1 - dropout), read off the kernel: of a row of zeros and factors those above the mean are factors."""
    ones = torch.ones(shape[-1], device=DEVICE)
    zeros = torch.zeros(shape, device=DEVICE)
    kept = residual_norm(zeros, zeros + 1.0, ones, ones * 0.0, dropout, seed, EPS) > 0
    return kept / (1.0 - dropout)


@pytest.mark.parametrize("shape", [(63, 60), (3, 5, 7), (4, 1030), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_is_the_equation(shape, dtype):
    assert_as_exact_as(fused, equation, *inputs(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dropout_is_the_same_in_both_passes(dtype):
    seed = torch.tensor(7, device=DEVICE)
    factors = factors_of((64, 60), 0.3, seed)
    assert 0.65 < (factors > 0).float().mean() < 0.75  # 3840 elements: 0.7 ± 6 deviations
    assert not torch.equal(factors, factors_of((64, 60), 0.3, seed + 1))
    assert_as_exact_as(
        lambda *tensors: fused(*tensors, dropout=0.3, seed=seed),
        lambda *tensors: equation(*tensors, factors=factors),
        *inputs(64, 60, dtype=dtype),
    )


def test_a_row_of_one_is_the_bias():
    """Nothing depends on x then: its gradient is one rounding of dy · weight, times 1 / sqrt(eps)."""
    x, change, weight, bias = inputs(5, 1)
    y = fused(x.requires_grad_(), change, weight, bias)
    assert torch.equal(y, bias.expand(5, 1))
    dy = draw(5, 1, seed=5)
    (dx,) = torch.autograd.grad(y, x, dy)
    assert (dx.abs() <= (dy * weight).abs() * torch.finfo(torch.float32).eps * EPS**-0.5).all()


def test_a_residual_in_float32_beside_a_change_in_half():
    x, change, weight, bias = inputs(9, 40)
    y = fused(x, change.half(), weight, bias)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y, equation(x, change.half(), weight, bias), rtol=1e-3, atol=1e-3)
    leaves = [x.requires_grad_(), change.half().requires_grad_()]
    gradients = torch.autograd.grad(fused(*leaves, weight, bias).sum(), leaves)
    assert [gradient.dtype for gradient in gradients] == [torch.float32, torch.float16]


def test_rows_are_read_where_they_lie():
    x, change, weight, bias = inputs(9, 100)
    weight, bias = weight[:60], bias[:60]
    there = fused(x[:, 20:80], change[:, 40:], weight, bias)
    assert torch.equal(there, fused(x[:, 20:80].contiguous(), change[:, 40:].contiguous(), weight, bias))


def test_more_rows_than_programs_of_the_backward_pass():
    rows = 2 * ROWS * PROGRAMS * processors(torch.device(DEVICE)) + 5  # two rounds of blocks, and a third
    assert_as_exact_as(fused, equation, *inputs(rows, 3))


def test_no_rows():
    x, change, weight, bias = inputs(0, 16)
    y = fused(x, change, weight.requires_grad_(), bias)
    assert y.shape == (0, 16)
    assert torch.autograd.grad(y.sum(), weight)[0].abs().max() == 0


def test_the_operator_keeps_its_contract():
    tensors = [tensor.requires_grad_() for tensor in inputs(5, 3, 20)]
    operator = torch.ops.rela.fused_residual_norm.default
    for dropout, seed in ((0.0, None), (0.2, torch.tensor(3, device=DEVICE))):
        torch.library.opcheck(operator, (*tensors, dropout, seed, EPS))


def test_bad_input_is_named():
    x, change, weight, bias = inputs(3, 16)
    with pytest.raises(ValueError, match="wanted"):
        residual_norm(x, change[:2], weight, bias, 0.0, None, EPS)
    with pytest.raises(ValueError, match="no seed"):
        residual_norm(x, change, weight, bias, 0.1, None, EPS)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(25000, 512), (1001, 1000), (64, 20000)])
def test_large_shapes_on_the_device(shape, dtype):
    seed = torch.tensor(5, device=DEVICE)
    factors = factors_of(shape, 0.1, seed)
    assert_as_exact_as(
        lambda *tensors: fused(*tensors, dropout=0.1, seed=seed),
        lambda *tensors: equation(*tensors, factors=factors),
        *inputs(*shape, dtype=dtype),
    )
