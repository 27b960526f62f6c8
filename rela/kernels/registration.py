"""Differentiable operators of the `rela` library, registered with little overhead.

`torch.library.custom_op` with `register_autograd` spends about 100 µs of Python on every call that needs a gradient,
more than a short attention takes on the device; an `autograd.Function` under the dispatcher's autograd key spends 10.
Compiled code calls an operator where no gradient is recorded: there it computes at once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from rela.device import PLAIN, is_plain_eager

LIBRARY = torch.library.Library("rela", "FRAGMENT")  # the operators live as long as this object


def operator(function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Make `function` the operator torch.ops.rela.<its name>, without a gradient; `fake` gives its empty outputs."""
    name = function.__name__
    schema = torch.library.infer_schema(function, mutates_args=())
    LIBRARY.define(name + schema, tags=[torch.Tag.pt2_compliant_tag])
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"rela::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.rela, name).default


def differentiable_operator(
    function: Callable[..., Any],
    fake: Callable[..., Any],
    setup_context: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[..., tuple[Any, ...]],
) -> None:
    """Make `function` the operator torch.ops.rela.<its name>; its first argument is a tensor.

    `fake` gives empty outputs of the right shapes and strides; `setup_context(ctx, inputs, output)` saves what
    `backward(ctx, *gradients)` needs to give one gradient, or None, for each input.
    """
    below = operator(function, fake)

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                output = below(*inputs)
            setup_context(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, *gradients)

    def call(*inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if records(tensors):
            return Differentiable.apply(*inputs)
        if is_plain_eager(inputs[0]) and all(type(x) in PLAIN and not x.is_meta for x in tensors):
            return function(*inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return below(*inputs)

    LIBRARY.impl(function.__name__, call, "Autograd")


def records(tensors: list[Tensor]) -> bool:
    """Whether a call with these tensors has a gradient to record, or a tangent to refuse."""
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return recorded or forward_ad._current_level >= 0
