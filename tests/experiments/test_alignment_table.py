"""Rows of every aligner of two models, judged against gold links."""

import json

import pytest

from experiments.alignment_table import main
from rela.alignment.choose import AlignmentChoice, save_choice
from rela.alignment.corpus import METHODS
from rela.alignment.joint import JointAligner, JointModule, save_joint
from rela.toy import generate, write_corpus
from tests.tiny_models import BACK, tiny_folder


def test_every_variant_has_its_row_and_interval(tmp_path, capsys):
    models = [tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)]
    for name in ("there", "back"):
        save_choice(tmp_path / name, AlignmentChoice(1, (0,), False))
    save_joint(JointAligner(*models, JointModule(*(model.config.model.width for model in models))))
    write_corpus(tmp_path, {"gold": generate(6, seed=5)})
    files = {"forward": "there", "reverse": "back", "source": "gold.en", "target": "gold.de", "gold": "gold.align"}
    arguments = [word for name, file in files.items() for word in (f"--{name}", str(tmp_path / file))]
    more = ["--links", f"truth={tmp_path / 'gold.align'}", "--resamples", "20", "--output", str(tmp_path / "rows.json")]
    rows = main([*arguments, *more, "--device", "cpu"])
    assert rows[0]["aer"] == rows[0]["low"] == rows[0]["high"] == 0.0
    assert rows[1]["aligner"] == "truth, without links of a word and a mark"
    assert rows[1]["links"] <= rows[0]["links"]
    assert len(rows) == 2 + 2 + 2 * (3 + len(METHODS))
    assert sum(row.get("uses_gold", False) for row in rows) == 1
    for row in rows:
        assert row["low"] <= row["aer"] <= row["high"]
    assert json.loads((tmp_path / "rows.json").read_text())["rows"] == rows
    assert capsys.readouterr().out.count("\n") == len(rows)
    (tmp_path / "back" / "alignment.json").unlink()
    with pytest.raises(SystemExit, match="run rela fit-aligner first"):
        main([*arguments, "--device", "cpu"])
