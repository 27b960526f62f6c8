"""The filter experiment: what is planted is known, and what each rule finds is counted."""

import json

import numpy as np
import pytest

from experiments.filter_experiment import KINDS, length_badness, main, plant, precision_rows, read_noisy
from rela.filtering.calibration import calibrate
from rela.filtering.detector import save_detectors
from tests.tiny_models import tiny_folder, toy_pairs


def test_planted_noise_is_what_is_said_and_leaves_the_rest_alone():
    pairs = toy_pairs(120)
    made, kinds = plant(pairs, 0.2, 1, ["une phrase française"])
    noisy = [i for i, kind in enumerate(kinds) if kind]
    assert 20 <= len(noisy) <= 24
    assert set(kinds) == {"", *KINDS}
    for i, kind in enumerate(kinds):
        assert (made[i] != pairs[i]) == bool(kind)
        assert made[i][0] == pairs[i][0]
        if kind == "wrong-language":
            assert made[i][1] == "une phrase française"
        if kind == "copy":
            assert made[i][1] == made[i][0]
    assert plant(pairs, 0.2, 1) == plant(pairs, 0.2, 1)


def test_precision_by_hand():
    kinds = ["", "copy", "", "", "omission", "", "", "", "", ""]
    values = np.array([0.1, 0.9, 0.2, 0.8, 0.3, 0.0, 0.0, 0.0, 0.0, np.inf])
    (row,) = precision_rows({"score": values}, kinds)
    assert row["precision in the worst 5%"] == 0.0, "the pair that cannot be read is the worst, and was not planted"
    assert row["precision in the worst 20%"] == 0.5
    assert row["auroc copy"] == pytest.approx(7 / 8)
    assert row["precision in the worst 20%, interval"] == [0.0, 1.0], "two of ten pairs drawn again and again"
    assert row["auroc, interval"][0] < row["auroc"] < row["auroc, interval"][1] <= 1.0


def test_length_ratio_is_bad_on_either_side():
    found = length_badness([("a b c", "x y z"), ("a b c", "x"), ("a", "x y z"), ("a b", "x y")])
    assert found[0] == found[3] == 0
    assert found[1] == pytest.approx(found[2])


def test_plant_and_rank_write_what_each_rule_keeps(tmp_path, capsys):
    there = tiny_folder(tmp_path / "model")
    save_detectors(tmp_path / "model", calibrate(there, None, toy_pairs(24, seed=11)))
    pairs = toy_pairs(40)
    for side, name in enumerate(("en", "de")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    out = tmp_path / "work"
    main(["plant", "--source", str(tmp_path / "en"), "--target", str(tmp_path / "de"), "--out", str(out)])
    main(["rank", "--model", str(tmp_path / "model"), "--out", str(out), "--device", "cpu"])
    printed = capsys.readouterr().out
    assert printed.count("precision in the worst 20%") == 4
    _, kinds = read_noisy(out)
    kept = {path.stem: path.read_text().count("\n") for path in out.glob("kept-*.source")}
    assert kept["kept-none"] == 40
    assert kept["kept-oracle"] == kinds.count("")
    assert all(kept[f"kept-{rule}"] == 32 for rule in ("score", "log-prob", "null-rate", "length-ratio"))


def test_compare_sets_every_rule_beside_the_oracle_and_the_score(tmp_path, capsys):
    references = [f"this is the sentence of number {i} , as it was said" for i in range(40)]
    worse = [line if i % 2 else line.replace("sentence of number", "number") for i, line in enumerate(references)]
    texts = {"oracle-1": references, "score-1": references, "log-prob-1": worse, "log-prob-2": worse}
    for name, lines in texts.items():
        (tmp_path / f"test-{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in references), encoding="utf-8")
    main(["compare", "--out", str(tmp_path), "--test-target", str(tmp_path / "de")])
    rows = json.loads((tmp_path / "compare.json").read_text())
    found = {(row["rule"], row["seed"], row["against"]): row for row in rows}
    assert set(found) == {
        ("log-prob", 1, "oracle"),
        ("log-prob", 1, "score"),
        ("oracle", 1, "score"),
        ("score", 1, "oracle"),
    }
    assert found["score", 1, "oracle"]["p"] == 1.0
    assert found["log-prob", 1, "score"]["value"] < found["log-prob", 1, "score"]["baseline"] == pytest.approx(100)
    assert found["log-prob", 1, "score"]["p"] < 0.05
