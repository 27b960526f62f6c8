"""Several processes on one grid: every run once, all rows kept."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.rows import append_row, merge_rows, read_rows
from experiments.workers import claimed


def test_a_claim_keeps_other_processes_out(tmp_path: Path) -> None:
    other = f"""
from pathlib import Path
from experiments.workers import claimed
with claimed(Path({str(tmp_path)!r}), "grid/task/rela-g/1") as mine:
    print(mine)
"""

    def elsewhere() -> str:
        return subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True).stdout.strip()

    with claimed(tmp_path, "grid/task/rela-g/1") as mine, claimed(tmp_path, "grid/task/rela-g/2") as another:
        assert mine
        assert another
        assert elsewhere() == "False"
    assert elsewhere() == "True"


def test_rows_added_at_once_are_all_kept(tmp_path: Path) -> None:
    """Each with a file handle of its own, so that locks work between threads as they do between processes."""

    def add(number: int) -> None:
        if number % 2:
            append_row(tmp_path / "rows.jsonl", {"id": number})
        else:
            merge_rows(tmp_path / "rows.jsonl", [{"id": number}])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert sorted(row["id"] for row in read_rows(tmp_path / "rows.jsonl")) == list(range(40))
