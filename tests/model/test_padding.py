"""How far keys are padded."""

from __future__ import annotations

import pytest

from rela.model.padding import KEY_MULTIPLE, SMALL_PRODUCT, padded_keys, round_up


def test_numbers_are_rounded_up():
    assert [round_up(number, 8) for number in (0, 1, 8, 9, 63)] == [0, 8, 8, 16, 64]


@pytest.mark.parametrize("head_size", [1, 7, 8, 64, 256, 500])
def test_keys_are_a_multiple_and_no_product_with_them_is_small(head_size):
    for longest in (1, 5, 16, 17, 100):
        keys = padded_keys(longest, head_size)
        assert keys >= longest
        assert keys % KEY_MULTIPLE == 0
        assert keys * head_size > SMALL_PRODUCT
