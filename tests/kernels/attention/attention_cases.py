"""Inputs of the fused attention, and the kernel held to the plain equation."""

import torch

from rela.kernels.attention.functional import relu_attention
from tests.kernels.exactness import assert_as_exact_as, draw, reference, seen_by

SCALE = 0.3
HALF = torch.float16


def assert_right(q, k, v, threshold=None, *, activation="relu", deterministic=False, **visibility):
    """The kernel against the plain equation, whatever limits what a query sees."""
    inputs = [q, k, v] if threshold is None else [q, k, v, threshold]

    def fused(q, k, v, threshold=None):
        options = {"activation": activation, "deterministic": deterministic, **visibility}
        return relu_attention(q, k, v, threshold=threshold, scale=SCALE, **options)

    def plain(q, k, v, threshold=None):
        seen = seen_by(q, k, **visibility)
        return reference(q, k, v, threshold, scale=SCALE, activation=activation, seen=seen)

    assert_as_exact_as(fused, plain, *inputs)


def qkv(B=2, H=2, T=63, S=63, D=24, Hk=None, dtype=torch.float32):
    Hk = Hk or H
    shapes = (B, H, T, D), (B, Hk, S, D), (B, Hk, S, D)
    return tuple(draw(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
