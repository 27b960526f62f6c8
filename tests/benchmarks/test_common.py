"""The benchmarks of a checkout: each has a help of its own, and the rows they write name no path of the machine."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from benchmarks import common

NAMES = sorted(
    path.stem for path in Path(common.__file__).parent.glob("*.py") if '__name__ == "__main__"' in path.read_text()
)


@pytest.mark.parametrize("name", NAMES)
def test_each_benchmark_has_a_help(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert stopped.value.code in (0, None)
    assert "usage:" in capsys.readouterr().out.lower()


@pytest.mark.parametrize("sign", [" ", "="])
def test_a_row_s_command_holds_no_path_of_the_machine(sign: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    options = f"--turns 3 --out{sign}{tmp_path / 'rows'}".split()
    monkeypatch.setattr("sys.argv", [str(tmp_path / "decoding.py"), *options])
    assert common.command() == f"python -m benchmarks.decoding --turns 3 --out{sign}rows"
