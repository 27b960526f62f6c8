"""Floating point operations of the two ways from scores to output (Table 4), T the length of the sequence."""

from __future__ import annotations


def softmax_flops(length: int, heads: int = 8) -> int:
    """3HT² − HT: an exponential, a sum and a division for each weight, less one addition a row."""
    return 3 * heads * length**2 - heads * length


def rela_g_flops(length: int, heads: int = 8, width: int = 512) -> int:
    """HT² + 10Td + T: a rectifier for each weight, and a gated RMSNorm for each token."""
    return heads * length**2 + 10 * length * width + length


def break_even_length(heads: int = 8, width: int = 512) -> float:
    """The length beyond which ReLA-g needs fewer operations than softmax: (10d + H + 1) / 2H."""
    return (10 * width + heads + 1) / (2 * heads)


def flops_table(lengths: tuple[int, ...] = (100, 1000), heads: int = 8, width: int = 512) -> list[dict[str, int]]:
    """One row a length, as the paper's text gives them for Transformer base."""
    return [
        {"length": length, "softmax": softmax_flops(length, heads), "rela-g": rela_g_flops(length, heads, width)}
        for length in lengths
    ]
