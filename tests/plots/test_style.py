"""Figures are saved whole, the same bytes each time, without leaving settings behind."""

from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from rela.plots.heads import heads_of_layer, small_multiples
from rela.plots.heatmap import heatmap
from rela.plots.style import KIND_COLORS, figure_of, kind_in, line_styles, save_figure

PNG = b"\x89PNG\r\n\x1a\n"


def test_png_and_svg_twice_the_same(make_record, tmp_path):
    before = dict(matplotlib.rcParams)
    for name in ("one", "two"):
        written = save_figure(heatmap(make_record(), 0, 1), tmp_path / "new" / name)
        assert [path.name for path in written] == [f"{name}.png", f"{name}.svg"]
    one, two = (
        [(tmp_path / "new" / f"{name}.{ending}").read_bytes() for ending in ("png", "svg")] for name in ("one", "two")
    )
    assert one == two
    assert one[0].startswith(PNG)
    assert ElementTree.fromstring(one[1]).tag.endswith("svg")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]
    assert dict(matplotlib.rcParams) == before


def test_the_png_has_two_hundred_dots_an_inch(make_record, tmp_path):
    axes = heatmap(make_record(), 0, 1)
    (path,) = save_figure(axes, tmp_path / "a", ("png",))
    size = [int.from_bytes(path.read_bytes()[start : start + 4]) for start in (16, 20)]
    assert size == [int(inches * 200) for inches in axes.get_figure().get_size_inches()]


def test_no_label_is_cut_off(make_record, tmp_path):
    queries = tuple(f"▁{word}" for word in ("Vorschriften", "Landwirte,", "Verbrauchern", "Kommission", "nicht."))
    drawn = heads_of_layer(make_record(queries=queries), 0)
    figure = figure_of(drawn[0])
    save_figure(drawn[0], tmp_path / "a", ("png",))
    figure.set_dpi(200)  # as the file was drawn
    figure.draw_without_rendering()
    for axes in drawn:
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            box = label.get_window_extent()
            assert box.x0 >= 0, label
            assert box.x1 <= figure.bbox.width, label


@pytest.mark.parametrize("draw", [heads_of_layer, lambda record, layer, **options: small_multiples(record, **options)])
def test_titles_are_whole_and_apart(make_record, draw):
    """With few words and a long name of the model, where the titles have least room."""
    record = make_record(None, "cross", ("▁a", "</s>"), ("▁b", "</s>"))
    drawn = list(np.ravel(draw(record, 0, title="a model of a very long name, layer 1, " * 5)))
    figure = figure_of(drawn[0])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for axes in drawn for text in (axes.title, axes.xaxis.label) if text.get_text()]
    assert boxes
    for box in (*boxes, figure._suptitle.get_window_extent()):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_a_kind_has_one_colour_everywhere():
    blue, orange = KIND_COLORS["rela-g"], KIND_COLORS["softmax"]
    for names in (["rela-g", "softmax"], ["softmax", "rela-g"], ["other", "Softmax, base", "runs/rela-g"]):
        styles = line_styles(names)
        assert {styles[name].color for name in names if "oftmax" in name} == {orange}
        assert {styles[name].color for name in names if "rela-g" in name} == {blue}
        assert len({style.color for style in styles.values()}) == len(names)
    assert line_styles(["a", "b"], {"a": "softmax", "b": "rela-g"})["b"].color == blue
    assert kind_in("rela-g-leaky") == "rela-g-leaky"  # a kind of its own, and not rela-g
    assert kind_in("relaxed") == ""


def test_a_format_nobody_can_write_leaves_nothing(make_record, tmp_path):
    with pytest.raises(ValueError, match="wanted one of png, svg, pdf"):
        save_figure(heatmap(make_record(), 0, 0), tmp_path / "a", ("docx",))
    assert list(tmp_path.iterdir()) == []


def test_characters_without_a_glyph_are_one_warning(make_record, tmp_path):
    linear_a = ("▁\U00010600\U00010601", "▁\U00010602", "</s>")
    record = make_record(None, "cross", linear_a)
    with pytest.warns(UserWarning, match="installed fonts lack 3 of the characters") as caught:
        save_figure(heatmap(record, 1, 0), tmp_path / "a")
    assert len(caught) == 1
