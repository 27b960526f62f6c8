"""Tensors that a hook gives back laid out anew, as `torch.autograd.graph.save_on_cpu` does, have the same gradients."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

pytest.importorskip("triton")

from rela.kernels.attention import normalised as kernels_with_norm
from rela.kernels.attention.functional import relu_attention, relu_attention_packed, simplex_attention
from rela.kernels.attention.problem import Problem
from tests.kernels.attention.attention_cases import SCALE
from tests.kernels.exactness import draw, packing_of

PACKS = {
    "dense": lambda x: torch.empty_like(x).copy_(x),  # as without pin_memory: the order of the axes stays
    "contiguous": lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x),  # with pin_memory=True
    "anywhere": lambda x: torch.cat([x.new_zeros(1), x.detach().flatten()])[1:].view(x.shape),
}


def plain(q, k, v, mask, *norm):
    return relu_attention(q, k, v, mask=mask, scale=SCALE, causal=True)


def simplex(q, k, v, mask, *norm):
    return simplex_attention(q, k, v, mask=mask > 0, scale=SCALE, causal=True)


def packed(q, k, v, mask, *norm):
    lengths = packing_of([9, 0, 20])
    return relu_attention_packed(*(x[0].transpose(0, 1) for x in (q, k, v)), lengths, lengths, scale=SCALE)


MEMO: dict = {}


def normalised(q, k, v, mask, gain, gate):
    options = SCALE, "relu", True, 0.0
    tensors = q, k, v, None, mask, None, None, None

    def problem_of(q, k, v, threshold, mask, *limits):
        return Problem(q, k, v, threshold, None, mask, None, None, None, *options, memo=MEMO)

    return kernels_with_norm.repeated(problem_of, gradient=True, decoding=False)(tensors, (gain, gate, 1e-6), True)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize("how", PACKS)
@pytest.mark.parametrize("function", [plain, simplex, packed, normalised])
def test_gradients_are_the_same(function, how: str, kind: torch.dtype):
    MEMO.clear()
    projected, mask = draw(2, 33, 3, 2, 16, dtype=kind, seed=1), draw(1, 2, 33, 33, dtype=kind, seed=2).mT
    leaves = [x.requires_grad_() for x in (projected, mask, draw(32, seed=3), draw(32, seed=4))]

    def gradients(pack) -> tuple[torch.Tensor | None, ...]:
        with saved_tensors_hooks(pack, lambda x: x):
            q, k, v = leaves[0].permute(2, 0, 3, 1, 4).unbind(0)
            out = function(q, k, v, *leaves[1:])
        return torch.autograd.grad(out, leaves, draw(*out.shape, dtype=kind, seed=5), allow_unused=True)

    wanted = gradients(lambda x: x)
    for pack in (PACKS[how], lambda x: x):  # what was planned for one layout does not serve the other
        for one, other in zip(gradients(pack), wanted, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
