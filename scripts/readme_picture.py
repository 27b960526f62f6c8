"""docs/images/heads.png: what the aligning heads of the demo's two models do with one sentence pair.

After `make demo`: `python -m scripts.readme_picture demo`. Each model is shown by the first head that its own
`alignment.json` names, which was chosen on validation text without gold links.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rela
from rela.alignment.choose import load_choice
from rela.analysis.capture import capture
from rela.analysis.words import merge_record
from rela.plots.heatmap import draw_matrix, legend
from rela.plots.style import new_figure

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "heads.png"
PAIR = ("The hungry girl may repair many cars .", "Das hungrige Mädchen darf ja viele Autos reparieren .")
KINDS = {"softmax": "softmax", "rela-g": "ReLA-g"}


def draw(demo: Path, out: Path) -> None:
    """Write the picture from the folder of `rela demo`."""
    figure = new_figure(7.0, 3.6)
    for axes, (kind, name) in zip(figure.subplots(1, 2), KINDS.items(), strict=True):
        model = rela.load(demo / kind / "model", device="cpu")
        choice = load_choice(demo / kind / "model")
        if choice is None:
            raise FileNotFoundError(f"{demo / kind / 'model'} has no alignment.json; wanted a folder of rela demo")
        (records,) = capture(model, [PAIR], types=("cross",))
        record = merge_record(records["cross"])
        draw_matrix(record, choice.layer, choice.heads[0], axes)
        axes.set_title(f"{name}, layer {choice.layer + 1}, head {choice.heads[0] + 1}")
    legend(figure, record, False, columns=3)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), PICTURE)
