"""Heatmaps show the weights of words, scaled by the head's own maximum, with null rows visibly empty."""

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from rela.analysis.words import merge_record
from rela.evaluation.alignment import GoldLinks
from rela.plots.heatmap import LONGEST_WORD, axis_label, heatmap
from rela.plots.style import figure_of


def bands(axes):
    """(row, first column, columns) of each hatched band."""
    found = [patch for patch in axes.patches if patch.get_gid() == "null-row"]
    assert all(patch.get_hatch() for patch in found)
    return [(round(band.get_y() + 0.5), round(band.get_x() + 0.5), round(band.get_width())) for band in found]


def test_the_image_holds_the_word_weights_and_hides_the_zeros(make_record):
    record = make_record()
    record.weights[0, 0, 0, 3] = 0
    axes = heatmap(record, 0, 0)
    image = axes.images[0]
    words = merge_record(record).weights[0, 0].double().numpy()
    shown = image.get_array()
    assert np.array_equal(shown.mask, words == 0)
    assert shown.mask.sum() == 1
    assert np.array_equal(shown.filled(0), words)
    assert (image.norm.vmin, image.norm.vmax) == (0.0, words.max())


def test_words_stand_on_both_axes(make_record):
    axes = heatmap(make_record(), 1, 2)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Das", "Hausboot", ",", "</s>"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["The", "houseboat", "<b>", "$5$", "</s>"]
    figure_of(axes).canvas.draw()  # `$5$` is no formula, and nothing fails


def test_a_null_row_is_hatched_over_its_whole_width(make_record):
    record = make_record()
    assert bands(heatmap(record, 0, 1)) == [(0, 0, 5), (1, 0, 5)]
    assert bands(heatmap(record, 0, 0)) == []
    legend = [text.get_text() for text in figure_of(heatmap(record, 0, 1)).legends[0].get_texts()]
    assert any("null row" in text for text in legend)
    ramp = figure_of(heatmap(record, 0, 1)).legends[0].findobj(Rectangle)
    assert len({patch.get_facecolor() for patch in ramp}) > 8, "colours from the smallest to the largest weight"
    assert "50 % null" in heatmap(record, 0, 1).get_title()


def test_a_row_with_one_piece_that_looks_is_no_null_row(make_record):
    record = make_record()
    record.weights[0, 1, 2, 0] = 0.5  # the second piece of Hausboot
    assert bands(heatmap(record, 0, 1)) == [(0, 0, 5)]


def test_in_the_decoder_only_what_may_be_looked_at_is_hatched(make_record):
    words = ("▁a", "▁b", "▁c", "</s>")
    weights = torch.ones(1, 1, 4, 4).tril()
    weights[0, 0, 2] = 0
    record = make_record(weights, "decoder", words, ("<s>", *words[:-1]))
    axes = heatmap(record, 0, 0)
    assert bands(axes) == [(2, 0, 3)]
    forbidden = axes.images[1].get_array()
    assert np.array_equal(~np.ma.getmaskarray(forbidden), ~np.tril(np.ones((4, 4), bool)))


def test_negative_weights_get_two_colours_and_a_scale_around_zero(make_record):
    record = make_record()
    record.weights[0, 0, 3, 0] = -2.0
    norm = heatmap(record, 0, 0).images[0].norm
    assert (norm.vmin, norm.vmax) == (-2.0, 2.0)


def test_a_head_of_zeros_alone_is_all_band(make_record):
    record = make_record(torch.zeros(1, 1, 5, 6))
    assert len(bands(heatmap(record, 0, 0))) == 4


def test_gold_links_are_outlined_where_they_belong(make_record):
    gold = GoldLinks(frozenset({(1, 1)}), frozenset({(1, 1), (0, 2)}))
    axes = heatmap(make_record(), 0, 0, gold=gold)
    outlines = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_gid() == "gold-link"]
    where = {(round(box.get_x() + 0.42), round(box.get_y() + 0.42)): box.get_linestyle() for box in outlines}
    assert where == {(1, 1): "-", (0, 2): ":"}


@pytest.mark.parametrize(("layer", "head", "message"), [(2, 0, "layer 2"), (0, 3, "head 3"), (-1, 0, "layer -1")])
def test_a_head_that_is_not_there_is_said(make_record, layer, head, message):
    with pytest.raises(ValueError, match=message):
        heatmap(make_record(), layer, head)


def test_long_and_unprintable_words_are_made_fit_for_an_axis():
    assert len(axis_label("x" * 50_000)) == LONGEST_WORD
    assert "\0" not in axis_label("a\0b")
    assert axis_label("Straße") == "Straße"
