"""Training curves show the numbers of the log."""

import json

import numpy as np
import pytest

from rela.cli import main
from rela.plots.curves import read_log, training_curves

ROWS = [
    {"event": "train", "step": 100, "nll": 5.0, "tokens_per_second": 2000.0},
    {"event": "valid", "step": 100, "nll": 5.5},
    {"event": "train", "step": 200, "nll": 4.0, "tokens_per_second": 3000.0},
]


def write(folder, rows):
    folder.mkdir()
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_the_lines_are_the_log(tmp_path):
    losses, speeds = training_curves({"one": read_log(write(tmp_path / "one", ROWS))})
    lines = {line.get_label(): line for line in losses.get_lines()}
    assert list(lines["one"].get_xdata()) == [100, 200]
    assert list(lines["one"].get_ydata()) == [5.0, 4.0]
    assert list(lines["one, validation"].get_ydata()) == [5.5]
    assert list(speeds.get_lines()[0].get_ydata()) == [2.0, 3.0]


def test_labels_of_the_axes_do_not_overlap(tmp_path):
    rows = [{**ROWS[0], "step": 250 * i, "nll": 9.0 / (1 + i)} for i in range(1, 60)]
    bleu = [{"event": "bleu", "step": 12500, "bleu": 31.5, "signature": "nrefs:1"}]
    losses, _ = training_curves({"one": [*rows, *bleu]})
    losses.figure.draw_without_rendering()
    for axes in losses.figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)]
            boxes = [label.get_window_extent() for label in labels if label.get_text()]
            low, high = sorted(axis.get_view_interval())
            places = [*axis.get_majorticklocs(), *axis.get_minorticklocs()]
            seen = [box for box, place in zip(boxes, places, strict=False) if low <= place <= high]
            assert len(seen) >= 2
            assert not any(box.overlaps(other) for i, box in enumerate(seen) for other in seen[:i])


def test_bleu_is_drawn_where_it_was_logged(tmp_path):
    rows = [*ROWS, {"event": "bleu", "step": 200, "bleu": 31.5, "signature": "nrefs:1"}]
    losses, speeds = training_curves({"a": read_log(write(tmp_path / "a", rows)), "b": ROWS})
    panels = losses.figure.axes
    assert [panels[0], panels[2]] == [losses, speeds]
    assert panels[1].get_title() == "validation BLEU"
    assert [list(line.get_ydata()) for line in panels[1].get_lines()] == [[31.5], []]


def test_further_validation_sets_are_drawn_under_their_names(tmp_path):
    more = [
        {"event": "valid.news", "step": 100, "nll": 6.5},
        {"event": "bleu.news", "step": 200, "bleu": 21.5},
        {"event": "valid.news", "step": 200, "nll": None},
    ]
    losses, _ = training_curves({"one": read_log(write(tmp_path / "one", [*ROWS, *more]))})
    lines = {line.get_label(): line for line in losses.get_lines()}
    assert list(lines["one, validation"].get_ydata()) == [5.5]
    np.testing.assert_array_equal(lines["one, validation (news)"].get_ydata(), [6.5, np.nan])
    assert [list(line.get_ydata()) for line in losses.figure.axes[1].get_lines()] == [[], [21.5]]


def test_the_command_draws_several_runs(tmp_path):
    runs = [write(tmp_path / name, ROWS) for name in ("a", "b")]
    with pytest.raises(SystemExit) as stopped:
        main(["curves", str(runs[0]), f"other={runs[1] / 'log.jsonl'}", "--out", str(tmp_path / "curves")])
    assert stopped.value.code == 0
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "line 1"),
        ("{", "no training step"),
        ('{"event": "valid", "step": 1, "nll": 1}', "no training step"),
    ],
)
def test_what_is_no_log_is_named(tmp_path, capsys, text, said):
    (tmp_path / "log.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["curves", str(tmp_path), "--out", str(tmp_path / "curves")])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


ROW = {"event": "train", "step": 1, "nll": 2.5, "tokens_per_second": 10.0}


@pytest.mark.parametrize("torn", ['{"event": "train", "st', "\0\0\0", "[" * 100_000, "\ufffd", '{"a": 1} {"b": 2}'])
def test_a_torn_line_is_left_out_and_said_so(tmp_path, torn):
    path = tmp_path / "log.jsonl"
    path.write_bytes(f"{json.dumps(ROW)}\n{torn}".encode())
    with pytest.warns(UserWarning, match=r"log\.jsonl: line 2 is damaged and left out"):
        assert read_log(tmp_path) == [ROW]
    path.write_bytes(f"{json.dumps(ROW)}\n{torn}\n{json.dumps(ROW)}\n".encode())  # glued by an older version
    with pytest.warns(UserWarning, match="line 2 is damaged"):
        assert read_log(tmp_path) == [ROW, ROW]


@pytest.mark.parametrize(
    "change", [{"step": "1"}, {"step": None}, {"nll": "low"}, {"nll": True}, {"tokens_per_second": []}, {"event": 3}]
)
def test_rows_of_wrong_types_are_one_line(tmp_path, change):
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW | change)}\n")
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: wanted a row of a training log"):
        read_log(tmp_path)


def test_what_was_no_number_is_not_drawn(tmp_path):
    """A NaN is logged as null."""
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW | {'nll': None, 'step': 2})}\n")
    losses, _ = training_curves({"run": read_log(tmp_path)})
    values = losses.get_lines()[0].get_ydata()
    assert values[0] == 2.5
    assert np.isnan(values[1])
