"""The fused RMSNorm is equations 4 and 5, at any width, in any precision."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.attention.problem import processors
from rela.kernels.layers.rms_norm import PROGRAMS, rms_norm
from rela.kernels.layers.row_blocks import ROWS
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw

EPS = 1e-6


def equation(z, gain, gate=None):
    """Equation 5, or 4 without a gate; statistics in at least float32, as promised."""
    precise = z.to(torch.promote_types(z.dtype, torch.float32))
    y = precise * (precise.square().mean(-1, keepdim=True) + EPS).rsqrt() * gain
    return (y if gate is None else torch.sigmoid(gate * precise) * y).to(z.dtype)


def fused(z, gain, gate=None):
    return rms_norm(z, gain, gate, EPS)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("shape", [(63, 60), (3, 5, 7), (1, 1), (4, 1030)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_is_the_equation(shape, gated, dtype):
    z = draw(*shape, dtype=dtype, seed=1)
    parameters = [draw(shape[-1], dtype=dtype, seed=seed) for seed in (2, 3)[: 1 + gated]]
    assert_as_exact_as(fused, equation, z, *parameters)


def test_rows_are_read_where_they_lie():
    wide = draw(9, 100, seed=1)
    gain, gate = draw(60, seed=2), draw(60, seed=3)
    assert torch.equal(fused(wide[:, 20:80], gain, gate), fused(wide[:, 20:80].contiguous(), gain, gate))


def test_rows_in_half_precision_beside_parameters_in_float32():
    z, gain, gate = draw(37, 60, dtype=torch.float16, seed=1), draw(60, seed=2), draw(60, seed=3)
    leaves = [tensor.requires_grad_() for tensor in (z, gain, gate)]
    exact = [tensor.detach().double().requires_grad_() for tensor in leaves]
    dy = draw(37, 60, dtype=torch.float16, seed=5)
    got, wanted = (
        torch.autograd.grad(fused(*leaves), leaves, dy),
        torch.autograd.grad(equation(*exact), exact, dy.double()),
    )
    assert [gradient.dtype for gradient in got] == [torch.float16, torch.float32, torch.float32]
    for one, other, unit in zip(got, wanted, (2**-11, 2**-20, 2**-20), strict=True):
        assert (one.double() - other).abs().max() <= unit * other.abs().max()


def test_a_null_row_stays_null_and_has_finite_gradients():
    z = torch.zeros(3, 16, device=DEVICE, requires_grad=True)
    gain, gate = (draw(16, seed=seed).requires_grad_() for seed in (2, 3))
    y = fused(z, gain, gate)
    assert y.abs().max() == 0
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), [z, gain, gate]))


def test_more_rows_than_programs_of_the_backward_pass():
    rows = 2 * ROWS * PROGRAMS * processors(torch.device(DEVICE)) + 5  # two rounds of blocks, and a third
    z = draw(rows, 3, seed=1)
    assert_as_exact_as(fused, equation, z, draw(3, seed=2), draw(3, seed=3))


def test_no_rows():
    z = torch.empty(0, 16, device=DEVICE, requires_grad=True)
    gain = torch.ones(16, device=DEVICE, requires_grad=True)
    y = fused(z, gain)
    assert y.shape == (0, 16)
    assert torch.autograd.grad(y.sum(), gain)[0].abs().max() == 0


def test_the_operator_keeps_its_contract():
    z, gain, gate = (draw(*shape, seed=1).requires_grad_() for shape in ((5, 3, 20), (20,), (20,)))
    for opened in (gate, None):
        torch.library.opcheck(torch.ops.rela.gated_rms_norm.default, (z, gain, opened, EPS))


def test_a_parameter_of_the_wrong_width_is_named():
    with pytest.raises(ValueError, match="gate has shape"):
        rms_norm(draw(3, 16), draw(16), draw(8), EPS)


@pytest.mark.gpu
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(25000, 512), (1001, 1000), (64, 20000)])
def test_large_shapes_on_the_device(shape, dtype, gated):
    z = draw(*shape, dtype=dtype, seed=1)
    parameters = [draw(shape[-1], dtype=dtype, seed=seed) for seed in (2, 3)[: 1 + gated]]
    assert_as_exact_as(fused, equation, z, *parameters)
