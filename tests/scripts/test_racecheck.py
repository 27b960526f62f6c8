"""What is reported of a run of racecheck, and that a case runs; the tool itself needs a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from scripts.racecheck import CASES, check, perform, verdict


def test_the_summary_and_what_the_tool_cannot_watch_are_reported():
    found = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"
    assert verdict(found) == "RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
    assert verdict("========= Warning: wgmma is not supported\n" + found).endswith("wgmma is not supported")
    assert verdict("rms-norm ended\n") == "no summary"


@pytest.mark.parametrize("name", ["rms-norm", "best-tokens", "centring"])
def test_cases_run(name, capsys):
    perform(name)
    assert capsys.readouterr().out == f"{name} ended\n"
    assert name in CASES


def test_a_case_without_time_says_so(tmp_path):
    assert check("relu", "true", 0.0, tmp_path / "races") == "relu: without the tool did not end"
