"""The notebooks run from top to bottom and hold no output; `make notebooks` runs them in a kernel of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

SAID = {
    "attention-in-five-minutes": [
        "relu       null rate 0.17 [0. 0. 0. 0. 0. 0. 0. 0.]",
        "6 × torch.nn.MultiheadAttention",
    ],
    "read-a-head": ["null rows, links [", "aligns best: AER 0.", "shuffled   AUROC 1.00", "warn\n"],
}
"""What a notebook prints."""


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@notebooks
def test_no_output_is_stored(path: Path) -> None:
    cells = code_cells(path)
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@notebooks
def test_the_cells_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    names: dict[str, Any] = {}
    for number, cell in enumerate(code_cells(path), 1):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    printed = capsys.readouterr().out
    for line in SAID[path.stem]:
        assert line in printed
    import matplotlib.pyplot

    matplotlib.pyplot.close("all")


@pytest.mark.campaign
@notebooks
def test_a_kernel_runs_them(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.get("text", "") for output in outputs)
    assert all(line in printed for line in SAID[path.stem])
    assert any("image/png" in output.get("data", {}) for output in outputs), "no figure was shown"
