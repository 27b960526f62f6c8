"""AUROC of every score on labelled pairs and on noise."""

import lzma

import pytest

from experiments.detection_table import main, read_labelled
from rela.filtering.calibration import calibrate
from rela.filtering.detector import save_detectors
from rela.filtering.noise import ALL_NOISES
from tests.tiny_models import BACK, tiny_folder, toy_pairs


def test_labelled_pairs_and_noise_are_judged_by_every_score(tmp_path, capsys):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    with pytest.raises(SystemExit, match="not calibrated"):
        main(["--forward", str(tmp_path / "there"), "--device", "cpu", "--labelled", "x"])
    save_detectors(tmp_path / "there", calibrate(there, back, toy_pairs(24, seed=11)))
    pairs = toy_pairs(8)
    lines = ["source\ttranslation\tomission\tfully_detached"]
    lines += [f"{source}\t{target}\t0\t0" for source, target in pairs]
    lines += [f"{source}\t{source}\t0\t1" for source, _ in pairs]  # which needs no training to find
    labelled = tmp_path / "labelled.tsv.xz"
    labelled.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode()))
    assert len(read_labelled(labelled)) == 16
    for side, name in enumerate(("en", "de")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    models = ["--forward", str(tmp_path / "there"), "--reverse", str(tmp_path / "back"), "--device", "cpu"]
    text = ["--source", str(tmp_path / "en"), "--target", str(tmp_path / "de"), "--resamples", "10"]
    rows = main([*models, *text, "--labelled", str(labelled), "--bad", "detached=omission,fully_detached"])
    assert len(rows) == 7 * (1 + len(ALL_NOISES))
    by = {row["by"]: row["auroc"] for row in rows if row["what"] == "labelled: detached"}
    assert by["score"] > 0.8
    assert all(row["low"] <= row["auroc"] <= row["high"] for row in rows)
    labelled.write_bytes(lzma.compress("\n".join(lines).replace("0\t1", "0\t1.0").encode()))
    for bad, named in (("fully_detached", "has '1.0' in the column 'fully_detached'"), ("none", "has 'None' in")):
        with pytest.raises(SystemExit, match=named):
            main([*models, "--labelled", str(labelled), "--bad", f"bad={bad}"])
    capsys.readouterr()


@pytest.mark.parametrize("more", [[], ["--source", "text"], ["--labelled", "table", "--target", "text"]])
def test_a_table_of_nothing_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["--forward", "model", *more])
    assert ("go together" if more else "nothing to judge") in capsys.readouterr().err
