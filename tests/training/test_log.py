"""The log of a run: a JSON object a line, a line in the terminal, and sums between reports."""

import json

import pytest
import torch

from rela.training.log import Meter, TrainingLog, clock


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.9, "0:59"), (123, "2:03"), (3723, "1:02:03")])
def test_times_as_on_a_clock(seconds: float, shown: str):
    assert clock(seconds) == shown


def test_lines_are_json_and_a_second_run_goes_on(tmp_path, capsys):
    for step in (1, 2):
        log = TrainingLog(tmp_path, 20, tensorboard=False)
        log.train(step, 3.25, 3.0, 1e-3, 1234.5, 61.0)
        log.close()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["event"], row["step"], row["loss"], row["nll"]) for row in rows] == [
        ("train", 1, 3.25, 3.0),
        ("train", 2, 3.25, 3.0),
    ]
    assert capsys.readouterr().err.splitlines()[0] == (
        "step  1/20  loss 3.250  nll 3.000  lr 1.00e-03  1,234 tokens/s  1:01 left"
    )


def test_what_is_no_number_is_null_and_quiet_is_quiet(tmp_path, capsys):
    log = TrainingLog(tmp_path, 5, tensorboard=False, quiet=True)
    log.write("valid", 1, nll=float("nan"))
    log.say("unheard")
    log.close()
    assert json.loads((tmp_path / "log.jsonl").read_text())["nll"] is None
    assert capsys.readouterr().err == ""


def test_sums_since_the_last_report():
    meter = Meter(torch.device("cpu"))
    meter.add(torch.tensor([2.0, 1.0]), 10)
    meter.add(torch.tensor([4.0, 2.0]), 5)
    assert (meter.sums.tolist(), meter.tokens) == ([6.0, 3.0], 15)
    since = meter.since
    with meter.paused():
        pass
    assert meter.since >= since
    meter.reset()
    assert (meter.sums.tolist(), meter.tokens) == ([0.0, 0.0], 0)


@pytest.mark.parametrize("torn", [b"", b'{"event": "train", "st', b"x" * 200_000, b"\0" * 70_000])
@pytest.mark.parametrize("whole", [b"", b'{"event": "train", "step": 1}\n'])
def test_a_torn_last_row_is_cut_off_before_the_next_is_written(tmp_path, whole, torn):
    (tmp_path / "log.jsonl").write_bytes(whole + torn)
    log = TrainingLog(tmp_path, 10, tensorboard=False, quiet=True)
    log.write("valid", 2, loss=1.0)
    log.close()
    lines = (tmp_path / "log.jsonl").read_bytes().removeprefix(whole).splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2]
