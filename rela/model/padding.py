"""How far keys are padded, so that a sentence's numbers do not depend on the sentences beside it."""

from __future__ import annotations

# Keys are padded to a multiple of this. Vectorised sums then use the same lanes whatever the longest sentence is.
KEY_MULTIPLE = 16
# PyTorch multiplies matrices by another kernel, which sums in another order, where rows · columns · inner size is below
# this. Keys are padded beyond it, or a short sentence's last bits would depend on whether a longer one is beside it.
SMALL_PRODUCT = 400


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not below the number."""
    return -(-number // multiple) * multiple


def padded_keys(longest: int, head_size: int) -> int:
    """The number S of cross keys that a decoder state is padded to, for sources of at most `longest` tokens."""
    return round_up(max(longest, SMALL_PRODUCT // head_size + 1), KEY_MULTIPLE)
