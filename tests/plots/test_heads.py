"""Several heads in one figure, each scaled by its own maximum."""

import numpy as np

from rela.analysis.words import merge_record
from rela.plots.heads import heads_of_layer, heads_of_pairs, small_multiples


def test_all_heads_of_a_layer_or_some(make_record):
    record = make_record()
    drawn = heads_of_layer(record, 1)
    merged = merge_record(record).weights[1].double().numpy()
    assert len(drawn) == 3
    for head, axes in enumerate(drawn):
        assert np.array_equal(axes.images[0].get_array().filled(0), merged[head])
        assert axes.images[0].norm.vmax == merged[head].max(), "each head has its own scale"
    assert [axes.get_title().split("\n")[0] for axes in heads_of_layer(record, 0, [2, 0])] == [
        "layer 1, head 3",
        "layer 1, head 1",
    ]


def test_small_multiples_are_layers_by_heads(make_record):
    grid = small_multiples(make_record(), "title")
    assert [len(row) for row in grid] == [3, 3]
    assert len([patch for patch in grid[0][1].patches if patch.get_gid() == "null-row"]) == 2
    assert grid[1][0].get_ylabel() == "layer 2"
    assert grid[0][2].get_title() == "head 3"
    assert all(axes.get_xlabel().endswith(" % null") for row in grid for axes in row), "a word on each tile"


def test_one_head_over_several_pairs(make_record):
    drawn = heads_of_pairs([make_record(), make_record()], 0, 1, 2, notes=["true", "shuffled"])
    assert [axes.get_title().split()[0] for axes in drawn] == ["true", "shuffled"]
