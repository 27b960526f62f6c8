"""The lines of Figures 3 to 6 are the means they claim to be, and can be told apart without colour."""

import pytest
from matplotlib.colors import to_hex

from rela.analysis.links import AlignmentByHead
from rela.evaluation.alignment import AlignmentScore
from rela.plots.layers import (
    diversity_by_layer,
    error_rate_by_layer,
    null_rate_by_layer,
    sink_by_layer,
    sparsity_by_layer,
)
from rela.plots.style import PALETTE, figure_of, line_styles, new_figure

TYPES = ("encoder", "decoder", "cross")


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def values(line):
    assert list(line.get_xdata()) == list(range(1, len(line.get_xdata()) + 1)), "layers count from 1"
    return list(line.get_ydata())


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (sparsity_by_layer, lambda summary: summary.sparsity.mean(dim=1).tolist()),
        (diversity_by_layer, lambda summary: summary.diversity.tolist()),
        (null_rate_by_layer, lambda summary: summary.null_rate.mean(dim=1).tolist()),
    ],
)
def test_a_panel_for_each_type_and_a_line_for_each_model(draw, expected, make_summaries):
    summaries = make_summaries(1)
    for axes, type in zip(draw(summaries), TYPES, strict=True):
        assert type in axes.get_title()
        assert values(lines(axes)["a"]) == expected(summaries["a"][type])
        assert values(lines(axes)["b"]) == expected(summaries["b"][type])


def test_shuffled_pairs_are_the_same_line_dashed(make_summaries):
    true, shuffled = make_summaries(1), make_summaries(2)
    axes = null_rate_by_layer(true, shuffled)[2]
    solid, dashed = lines(axes)["b"], lines(axes)["b, shuffled"]
    assert values(solid) == true["b"]["cross"].null_rate.mean(dim=1).tolist()
    assert values(dashed) == shuffled["b"]["cross"].null_rate.mean(dim=1).tolist()
    assert (solid.get_color(), solid.get_marker()) == (dashed.get_color(), dashed.get_marker())
    assert solid.get_linestyle() == "-"
    assert dashed.get_linestyle() == "--"
    texts = [text.get_text() for text in figure_of(axes).legends[0].get_texts()]
    assert texts == ["a", "b", "true pairs", "shuffled pairs"]


def test_the_sink_is_drawn_where_there_is_one(make_summaries):
    summaries = make_summaries(3)
    encoder, cross = sink_by_layer(summaries)
    assert values(lines(encoder)["a"]) == summaries["a"]["encoder"].sink_mass.mean(dim=1).tolist()
    assert values(lines(cross)["a"]) == summaries["a"]["cross"].sink_mass.mean(dim=1).tolist()


def score(aer):
    return AlignmentScore(aer, 0.5, 0.5, 7)


def test_error_rates_solid_for_the_best_head_dashed_for_the_layer():
    normal = AlignmentByHead((score(0.9), score(0.8)), ((score(0.7), score(0.6)), (score(0.3), score(0.4))))
    shifted = AlignmentByHead((score(0.5), score(0.4)), ((score(0.2), score(0.3)), (score(0.25), score(0.1))))
    left, right = error_rate_by_layer({"m": {False: normal, True: shifted}})
    assert values(lines(left)["m"]) == pytest.approx([60, 30])
    assert values(lines(left)["m, layer attention"]) == pytest.approx([90, 80])
    assert values(lines(right)["m"]) == pytest.approx([20, 10])
    assert lines(right)["m"].get_linestyle() == "-"
    assert lines(right)["m, layer attention"].get_linestyle() == "--"


def test_models_differ_in_marker_as_well_as_in_colour():
    styles = line_styles(f"model {i}" for i in range(14))
    assert len({(style.color, style.marker) for style in styles.values()}) == 14
    first = list(styles.values())[: len(PALETTE)]
    assert len({style.color for style in first}) == len({style.marker for style in first}) == len(PALETTE)
    assert all(to_hex(color) == color.lower() for color in PALETTE)


def test_given_axes_are_drawn_on(make_summaries):
    given = new_figure().subplots(1, 3)
    assert sparsity_by_layer(make_summaries(1), given) == tuple(given)
    with pytest.raises(ValueError, match="2 axes were given; wanted 3"):
        sparsity_by_layer(make_summaries(1), given[:2])


def test_no_model_is_said():
    with pytest.raises(ValueError, match="no model"):
        sparsity_by_layer({})
