"""Figures are saved whole, the same bytes each time, without pyplot and without leaving settings behind."""

import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import pytest

from rela.plots.heads import heads_of_layer
from rela.plots.heatmap import heatmap
from rela.plots.style import figure_of, save_figure

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


def test_a_format_nobody_can_write_leaves_nothing(make_record, tmp_path):
    with pytest.raises(ValueError, match="wanted one of png, svg, pdf"):
        save_figure(heatmap(make_record(), 0, 0), tmp_path / "a", ("docx",))
    assert list(tmp_path.iterdir()) == []


def test_pyplot_is_never_imported():
    modules = "rela.plots.heads, rela.plots.layers, rela.plots.noise, rela.report.write"
    code = f"import sys, {modules}; print('matplotlib.pyplot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_characters_without_a_glyph_are_one_warning(make_record, tmp_path):
    linear_a = ("▁\U00010600\U00010601", "▁\U00010602", "</s>")
    record = make_record(None, "cross", linear_a)
    with pytest.warns(UserWarning, match="installed fonts lack 3 of the characters") as caught:
        save_figure(heatmap(record, 1, 0), tmp_path / "a")
    assert len(caught) == 1
