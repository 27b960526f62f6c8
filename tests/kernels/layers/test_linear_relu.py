"""The rectified linear layer is relu(x Wᵀ + b), with the gradients of that, at any size."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from rela.kernels.attention.problem import processors
from rela.kernels.layers.linear_relu import linear_relu
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw


def plain(x, weight, bias):
    return F.relu(F.linear(x, weight, bias))


def inputs(rows, width, wide, dtype=torch.float32):
    return (
        draw(rows, width, dtype=dtype, seed=1),
        draw(wide, width, dtype=dtype, seed=2),
        draw(wide, dtype=dtype, seed=3),
    )


@pytest.mark.parametrize(("rows", "width", "wide"), [(63, 20, 60), (1, 1, 1), (300, 5, 3), (70, 8, 700)])
def test_it_is_the_layer_and_its_gradients(rows, width, wide):
    assert_as_exact_as(linear_relu, plain, *inputs(rows, width, wide))


def test_more_rows_than_programs():
    # five blocks of columns, so fewer programs than processors for each
    rows = 2 * 32 * processors(torch.device(DEVICE)) + 5
    assert_as_exact_as(linear_relu, plain, *inputs(rows, 3, 1100))


def test_nothing_passes_where_the_output_is_zero():
    x, weight, bias = (tensor.requires_grad_() for tensor in inputs(9, 6, 7))
    gradients = torch.autograd.grad(linear_relu(x, weight, bias - 1e3).sum(), (x, weight, bias))
    assert all(not gradient.any() for gradient in gradients)


def test_a_gradient_of_any_layout():
    x, weight, bias = (tensor.requires_grad_() for tensor in inputs(9, 6, 7))
    dy = draw(7, 9, seed=5).mT
    got = torch.autograd.grad(linear_relu(x, weight, bias), (x, weight, bias), dy)
    torch.testing.assert_close(got, torch.autograd.grad(plain(x, weight, bias), (x, weight, bias), dy))


def test_no_rows():
    x, weight, bias = (tensor.requires_grad_() for tensor in inputs(0, 6, 7))
    y = linear_relu(x, weight, bias)
    assert y.shape == (0, 7)
    assert not torch.autograd.grad(y.sum(), bias)[0].any()


def test_the_operator_keeps_its_contract():
    torch.library.opcheck(torch.ops.rela.fused_linear_relu.default, [x.requires_grad_() for x in inputs(5, 3, 20)])


def test_bad_input_is_named():
    x, weight, bias = inputs(5, 3, 20)
    with pytest.raises(ValueError, match="wanted"):
        linear_relu(x, weight, bias[:2])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width", "wide"), [(25000, 512, 2048), (1001, 96, 1000)])
def test_large_shapes_on_the_device(rows, width, wide, dtype):
    x, weight, bias = inputs(rows, width, wide, dtype)
    assert x.device.type == DEVICE
    assert_as_exact_as(linear_relu, plain, x, weight / width**0.5, bias)
