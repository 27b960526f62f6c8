"""Training curves show the numbers of the log."""

import json

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


def test_the_command_draws_several_runs(tmp_path):
    runs = [write(tmp_path / name, ROWS) for name in ("a", "b")]
    with pytest.raises(SystemExit) as stopped:
        main(["curves", str(runs[0]), f"other={runs[1] / 'log.jsonl'}", "--out", str(tmp_path / "curves")])
    assert stopped.value.code == 0
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize(("text", "said"), [("{", "line 1"), ('{"event": "valid", "step": 1}', "no training step")])
def test_what_is_no_log_is_named(tmp_path, capsys, text, said):
    (tmp_path / "log.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["curves", str(tmp_path), "--out", str(tmp_path / "curves")])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
