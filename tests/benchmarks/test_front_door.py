"""The front-door benchmark rehearsed on the CPU: cases run, failures become rows, and the table names the rival."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import front_door
from benchmarks.clocks import Contender

REHEARSAL = front_door.Setting(torch.device("cpu"), torch.float32, True, 1, 1.0)


def test_a_rehearsal_leaves_rows_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = front_door.main(REHEARSAL, tmp_path, ["host"], 5.0)
    assert not [row for row in rows if row.error and row.contender == front_door.OURS]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host.jsonl"]
    table = front_door.table(front_door.read_rows(tmp_path))
    ours = [row for row in rows if row.contender == front_door.OURS]
    assert len(table.splitlines()) == 2 + len(ours)
    assert all(row.ratio is not None and row.rival in table for row in ours)
    assert all(row.reached is None for row in rows)  # tiny sizes on a CPU prove nothing
    capsys.readouterr()


@pytest.mark.parametrize("section", ["decode", "masks", "intervals", "softmax", "simplex"])
def test_the_cases_of_a_section_can_be_made(section: str):
    """Each case has ours and a rival; the calls themselves are the rehearsal's."""
    for case in front_door.SECTIONS[section](REHEARSAL):
        contenders = case.make()
        assert len(contenders) >= 2, case.name
        assert any(not name.startswith(front_door.OURS) for name in contenders)


@pytest.mark.campaign
def test_every_case_runs(tmp_path: Path):
    rows = front_door.main(REHEARSAL, tmp_path, list(front_door.SECTIONS), 30.0)
    assert not [row for row in rows if row.error and row.contender == front_door.OURS]


def failing() -> dict[str, Contender]:
    raise RuntimeError("out of something")


def test_a_case_that_fails_is_a_row():
    (row,) = front_door.rows_of(front_door.Case("host", "bad", failing), REHEARSAL)
    assert row.error == "RuntimeError: out of something"
    assert "out of something" in front_door.table([row.__dict__])


def test_a_ratio_is_compared_with_its_bar():
    """A ratio below its bar is missed, one above is reached; both sides are measured in the same turns."""
    setting = front_door.Setting(torch.device("cpu"), torch.float32, False, 1)
    for turns in (1, 3):  # a contender may want more turns than are given
        quick, slow = Contender(lambda: None, turns=turns), Contender(lambda: sum(range(20_000)), turns=turns)
        for bar, reached in ((1.0, True), (1e9, False)):
            case = front_door.Case("host", "x", partial(dict, {"rela": quick, "slow": slow}), "eager", at_least=bar)
            row = front_door.rows_of(case, setting)[0]
            assert (row.reached, row.rival) == (reached, "slow")


def test_no_case_begins_after_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = front_door.main(REHEARSAL, tmp_path, ["heads"], -1.0)
    assert rows
    assert all("not begun" in row.error for row in rows)
    capsys.readouterr()


def test_parts_compile_every_case_once(capsys: pytest.CaptureFixture[str]):
    sections = ["host", "softmax"]
    for part in range(2):
        front_door.compile_part(REHEARSAL, sections, part, 2, 5.0)
    wanted = [f"{case.section} {case.name}" for section in sections for case in front_door.SECTIONS[section](REHEARSAL)]
    assert sorted(line.split(" s  ")[1] for line in capsys.readouterr().out.splitlines()) == sorted(wanted)
