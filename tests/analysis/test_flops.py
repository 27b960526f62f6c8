"""Table 4 at the lengths for which the paper prints numbers."""

import pytest

from rela.analysis.flops import break_even_length, flops_table, rela_g_flops, softmax_flops


def test_the_papers_numbers():
    short, long = flops_table((100, 1000), heads=8, width=512)
    assert (short["softmax"], short["rela-g"]) == (239_200, 592_100)  # 239K < 592K
    assert (long["softmax"], long["rela-g"]) == (23_992_000, 13_121_000)  # 23.99M > 13.12M


@pytest.mark.parametrize(("heads", "width"), [(8, 512), (16, 1024), (1, 64)])
def test_softmax_is_cheaper_up_to_the_break_even_length(heads, width):
    length = int(break_even_length(heads, width))
    assert softmax_flops(length, heads) <= rela_g_flops(length, heads, width)
    assert softmax_flops(length + 1, heads) > rela_g_flops(length + 1, heads, width)
