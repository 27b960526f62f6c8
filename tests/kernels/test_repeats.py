"""The same call a hundred times on a GPU: the same bits each time, but for the one sum whose order is left open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from rela.kernels.attention.functional import (
    relu_attention,
    relu_attention_decode,
    relu_attention_packed,
    simplex_attention,
    simplex_attention_packed,
)
from rela.kernels.layers.centring import centre_keys
from rela.kernels.layers.linear_relu import linear_relu
from rela.kernels.layers.residual_norm import residual_norm
from rela.kernels.layers.rms_norm import rms_norm
from rela.training.linear_cross_entropy import linear_cross_entropy
from tests.kernels.exactness import DEVICE, draw, packing_of, run

pytestmark = pytest.mark.gpu

REPEATS = 100 if torch.cuda.is_available() else 2
LENGTHS = [65, 1, 130, 7]
Case = tuple[Callable[..., Tensor], list[Tensor]]


def dense(T: int, S: int, D: int, dtype: torch.dtype) -> list[Tensor]:
    return [draw(2, 4, T, D, dtype=dtype, seed=1), *(draw(2, 2, S, D, dtype=dtype, seed=seed) for seed in (2, 3))]


def packed(D: int, dtype: torch.dtype) -> list[Tensor]:
    return [draw(sum(LENGTHS), heads, D, dtype=dtype, seed=heads + seed) for seed, heads in enumerate((4, 2, 2))]


def cases(dtype: torch.dtype) -> dict[str, Case]:
    """Every fused operation that has gradients; those of `relu_attention` are asked to be deterministic."""
    threshold, packing = draw(4, dtype=dtype, seed=9), packing_of(LENGTHS)
    seed = torch.tensor(5, device=DEVICE)
    targets = torch.arange(300, device=DEVICE) % 700
    return {
        "relu": (
            lambda q, k, v, t: relu_attention(q, k, v, threshold=t, scale=0.125, causal=True, deterministic=True),
            [*dense(300, 333, 64, dtype), threshold],
        ),
        "relu, float mask": (
            lambda q, k, v, mask: relu_attention(q, k, v, scale=0.125, mask=mask, deterministic=True),
            [*dense(300, 336, 64, dtype), draw(1, 4, 300, 336, dtype=dtype, seed=8)],
        ),
        "relu, packed": (
            lambda q, k, v: relu_attention_packed(q, k, v, packing, packing, scale=0.125, deterministic=True),
            packed(64, dtype),
        ),
        "sparsemax": (
            lambda q, k, v: simplex_attention(q, k, v, scale=0.125, activation="sparsemax"),
            dense(130, 200, 64, dtype),
        ),
        "entmax, packed": (
            lambda q, k, v: simplex_attention_packed(q, k, v, packing, packing, scale=0.125, activation="entmax15"),
            packed(64, dtype),
        ),
        "gated RMS norm": (
            lambda z, gain, gate: rms_norm(z, gain, gate, 1e-6),
            [draw(3000, 96, dtype=dtype, seed=1), draw(96, dtype=dtype, seed=2), draw(96, dtype=dtype, seed=3)],
        ),
        "residual norm": (
            lambda x, change, weight, bias: residual_norm(x, change, weight, bias, 0.1, seed, 1e-5),
            [*(draw(3000, 96, dtype=dtype, seed=i) for i in (1, 2)), *(draw(96, dtype=dtype, seed=i) for i in (3, 4))],
        ),
        "linear and ReLU": (
            linear_relu,
            [draw(3000, 96, dtype=dtype, seed=1), draw(200, 96, dtype=dtype, seed=2), draw(200, dtype=dtype, seed=3)],
        ),
        "cross-entropy": (
            lambda hidden, weight: linear_cross_entropy(hidden, weight, targets, 0.1, 128)[0][None].to(hidden.dtype),
            [draw(300, 96, dtype=dtype, seed=1), draw(700, 96, dtype=dtype, seed=2)],
        ),
        "centred keys": (
            lambda k: centre_keys(k, packing.cu_seqlens, torch.tensor(0.5, device=DEVICE)),
            [draw(sum(LENGTHS), 96, dtype=dtype, seed=1)],
        ),
    }


def differing(first: list[Tensor], again: list[Tensor]) -> list[int]:
    return [place for place, (one, other) in enumerate(zip(first, again, strict=True)) if not torch.equal(one, other)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", list(cases(torch.float32)))
def test_output_and_gradients_are_the_same_bits(name, dtype):
    function, inputs = cases(dtype)[name]
    first = run(function, inputs, dtype)
    for _ in range(REPEATS - 1):
        assert not differing(first, run(function, inputs, dtype))


@pytest.mark.parametrize("float_mask", [False, True])
@pytest.mark.parametrize("D", [64, 128])
def test_only_the_gradient_of_queries_depends_on_the_order_of_additions(D, float_mask):
    """Without `deterministic`, dQ may be a float32 sum by atomic additions (docs/kernels.md), and then is rounded."""
    inputs = dense(600, 600, D, torch.bfloat16)
    mask = draw(1, 4, 600, 600, dtype=torch.bfloat16, seed=4) if float_mask else None

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return relu_attention(q, k, v, scale=D**-0.5, causal=True, mask=mask)

    first = run(function, inputs, torch.bfloat16)
    for _ in range(REPEATS - 1):
        again = run(function, inputs, torch.bfloat16)
        assert differing(first, again) in ([], [1])
        step = torch.finfo(torch.bfloat16).eps * first[1].float().abs().max()
        assert (again[1].float() - first[1].float()).abs().max() <= step


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_decoding_gives_the_same_bits(dtype):
    q, k, v = dense(1, 1000, 64, dtype)
    first = relu_attention_decode(q, k, v, scale=0.125)
    assert all(torch.equal(relu_attention_decode(q, k, v, scale=0.125), first) for _ in range(REPEATS))
