"""Operators of our own: registered, differentiable, and seen by torch.compile."""

import torch

from rela.kernels.registration import differentiable_operator, operator


def test_an_operator_computes_and_has_a_fake_form():
    def rela_test_double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    double = operator(rela_test_double, torch.empty_like)
    x = torch.arange(5.0)
    assert torch.equal(double(x), 2 * x)
    torch.library.opcheck(double, (x,), test_utils=("test_schema", "test_faketensor"))


def test_a_differentiable_operator_has_the_gradient_it_was_given():
    def rela_test_square(x: torch.Tensor, scale: float) -> torch.Tensor:
        return scale * x * x

    def remember(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def differentiate(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 * ctx.scale * x, None

    differentiable_operator(rela_test_square, lambda x, scale: torch.empty_like(x), remember, differentiate)
    x = torch.arange(5.0, dtype=torch.float64).requires_grad_()
    assert torch.equal(torch.ops.rela.rela_test_square(x, 3.0), 3 * x * x)
    assert torch.autograd.gradcheck(lambda x: torch.ops.rela.rela_test_square(x, 3.0), x)
