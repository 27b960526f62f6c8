"""`rela check` and `rela filter --by score`, as they are typed."""

import csv
import json
import shutil

import pytest

from rela.alignment.joint import JOINT, save_joint
from rela.filtering.detector import DETECTOR, load_detectors
from rela.toy import generate, write_corpus
from tests.commands.running import refused, run
from tests.tiny_models import BACK, tiny_folder, tiny_joint


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two models, trusted pairs, and a text to check."""
    folder = tmp_path_factory.mktemp("lab")
    tiny_folder(folder / "there")
    tiny_folder(folder / "back", seed=2, languages=BACK)
    write_corpus(folder, {"trusted": generate(24, seed=11), "test": generate(6, seed=5)})
    return folder


def test_calibrate_check_and_filter(lab, tmp_path, capsys):
    both = ("--reverse", lab / "back")
    files = (lab / "test.en", lab / "test.de")
    run("check", lab / "there", *files, *both)
    output, error = capsys.readouterr()
    assert "is not calibrated" in error
    plain = list(csv.DictReader(output.splitlines(), delimiter="\t"))
    assert "--calibrate" in refused(
        capsys, "filter", lab / "there", *files, "--by", "score", "--out", tmp_path / "scores.tsv"
    )

    run("check", lab / "there", lab / "trusted.en", lab / "trusted.de", *both, "--calibrate")
    assert capsys.readouterr().out.count("24 trusted pairs; AUROC on noise kept out: shuffled") == 2
    run("check", lab / "there", *files, *both, "--format", "jsonl", "--page", tmp_path / "page.html")
    output, error = capsys.readouterr()
    assert error == ""
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(0 <= row["score"] <= 1 for row in rows)
    assert [row["score"] for row in rows] != [float(row["score"]) for row in plain]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<tr><td") == 6
    assert page.index(f">{max(rows, key=lambda row: row['score'])['line']}</td>") > 0

    run("filter", lab / "there", *files, *both, "--by", "score", "--keep", 0.5, "--out", tmp_path / "scores.tsv")
    with open(tmp_path / "scores.tsv", encoding="utf-8") as file:
        filtered = list(csv.DictReader(file, delimiter="\t"))
    assert [float(row["score"]) for row in filtered] == pytest.approx([row["score"] for row in rows], abs=1e-6)
    best = sorted(range(6), key=lambda i: rows[i]["score"])[:3]
    assert [i for i, row in enumerate(filtered) if row["kept"] == "1"] == sorted(best)
    capsys.readouterr()


def test_check_says_if_the_aligner_of_the_calibration_is_gone(lab, tmp_path, capsys):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    save_joint(tiny_joint(there, back))
    both = ("--reverse", tmp_path / "back")
    run("check", tmp_path / "there", lab / "trusted.en", lab / "trusted.de", *both, "--calibrate")
    capsys.readouterr()
    run("check", tmp_path / "there", lab / "test.en", lab / "test.de", *both, "--format", "jsonl")
    output, error = capsys.readouterr()
    assert error == ""
    assert 0 <= json.loads(output.splitlines()[0])["source_words"][0]["link"] <= 1
    (tmp_path / "back" / JOINT).unlink()
    run("check", tmp_path / "there", lab / "test.en", lab / "test.de", *both)
    error = capsys.readouterr().err
    assert "no longer in both folders; words are marked without links until rela check" in error
    run("check", tmp_path / "there", lab / "test.en", lab / "test.de")
    assert capsys.readouterr().err == ""


def test_check_says_if_there_was_no_aligner_at_the_calibration(lab, tmp_path, capsys):
    """A file of an older version is read as one that was made without an aligner."""
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    both = ("--reverse", tmp_path / "back")
    run("check", tmp_path / "there", lab / "trusted.en", lab / "trusted.de", *both, "--calibrate")
    capsys.readouterr()
    run("check", tmp_path / "there", lab / "test.en", lab / "test.de", *both)
    assert capsys.readouterr().err == ""
    save_joint(tiny_joint(there, back))
    run("check", tmp_path / "there", lab / "test.en", lab / "test.de", *both)
    assert "made without the trained aligner that is in both folders" in capsys.readouterr().err


def test_calibrating_one_model_alone_keeps_what_was_fitted_for_both(lab, tmp_path, capsys):
    for name, source in (("there", lab / "there"), ("back", lab / "back")):
        shutil.copytree(source, tmp_path / name)
    model, trusted = tmp_path / "there", (lab / "trusted.en", lab / "trusted.de")
    run("check", model, *trusted, "--reverse", tmp_path / "back", "--calibrate")
    both = load_detectors(model)
    run("check", model, *trusted, "--calibrate", "--domain", "same")
    now = load_detectors(model)
    assert now["both"] == both["both"]
    assert (both["alone"].domain, now["alone"].domain) == ("other", "same")
    (model / DETECTOR).write_text("{", encoding="utf-8")
    run("check", model, *trusted, "--calibrate")
    assert [*load_detectors(model)] == ["alone"]
    capsys.readouterr()


ALL_BAD = "24 of 24 pairs are worse than 99 % of trusted pairs: is"


@pytest.fixture
def warning_above(lab, tmp_path):
    """Sets the threshold beyond which the calibrated model in tmp_path warns."""
    shutil.copytree(lab / "there", tmp_path / "there")
    run("check", tmp_path / "there", lab / "trusted.en", lab / "trusted.de", "--calibrate")
    values = json.loads((tmp_path / "there" / DETECTOR).read_text())

    def set_to(limit: float) -> None:
        values["alone"]["thresholds"]["warn"] = limit
        (tmp_path / "there" / DETECTOR).write_text(json.dumps(values))

    return set_to


def test_check_says_if_nearly_all_pairs_are_bad(lab, tmp_path, warning_above, capsys):
    """As they are if the sides are swapped, or if a line is missing on one side."""
    for limit, said in ((2.0, False), (-1.0, True)):
        warning_above(limit)
        capsys.readouterr()
        run("check", tmp_path / "there", lab / "trusted.en", lab / "trusted.de")
        assert (ALL_BAD in capsys.readouterr().err) == said
    run("check", tmp_path / "there", lab / "test.en", lab / "test.de", "--page", tmp_path / "page.html")
    output, error = capsys.readouterr()
    assert (output.count("warn"), error) == (6, "")  # too few to say so
    assert "6 of them are worse" in (tmp_path / "page.html").read_text()


def test_filter_says_if_nearly_all_pairs_are_bad(lab, tmp_path, warning_above, capsys):
    files = (lab / "trusted.en", lab / "trusted.de")
    for limit, said in ((2.0, False), (-1.0, True)):
        warning_above(limit)
        for by, named in (("score", said), ("null-rate", False)):
            capsys.readouterr()
            run("filter", tmp_path / "there", *files, "--by", by, "--out", tmp_path / f"{by}{limit}.tsv")
            assert (ALL_BAD in capsys.readouterr().err) == named


def test_calibrate_says_if_trusted_pairs_are_too_few_for_thresholds(lab, tmp_path, capsys, monkeypatch):
    shutil.copytree(lab / "there", tmp_path / "there")
    for enough, said in ((25, True), (24, False)):
        monkeypatch.setattr("rela.filtering.calibration.ENOUGH", enough)
        run("check", tmp_path / "there", lab / "trusted.en", lab / "trusted.de", "--calibrate")
        assert ("every fifth of 24 pairs: about 1 in 5 good pairs" in capsys.readouterr().err) == said


def test_calibrate_refuses_a_reference_that_the_model_cannot_read(lab, tmp_path, capsys):
    tiny_folder(tmp_path / "there")
    command = ("check", tmp_path / "there", lab / "trusted.en", lab / "trusted.de", "--calibrate", "--reference")
    assert "the reference is empty" in refused(capsys, *command, "The cook sleeps .", " ")
    assert "the reference is too long" in refused(capsys, *command, "the " * 200, "Der Koch schläft .")
    assert not (tmp_path / "there" / DETECTOR).exists()


def test_check_refuses(lab, tmp_path, capsys):
    files = (lab / "test.en", lab / "test.de")
    assert "format is" in refused(capsys, "check", lab / "there", *files, "--format", "xml")
    assert "--calibrate too" in refused(capsys, "check", lab / "there", *files, "--pairs", 5)
    assert "leave out --out" in refused(capsys, "check", lab / "there", *files, "--calibrate", "--page", tmp_path / "x")
    assert "wanted at least 1" in refused(capsys, "check", lab / "there", *files, "--calibrate", "--pairs", 0)
    assert "6 trusted pairs" in refused(capsys, "check", lab / "there", *files, "--calibrate")
    assert "--by score too" in refused(
        capsys, "filter", lab / "there", *files, "--reverse", lab / "back", "--out", tmp_path / "s.tsv"
    )


def test_a_reverse_model_of_the_same_direction_is_refused(lab, tmp_path, capsys):
    files = (lab / "test.en", lab / "test.de")
    tiny_folder(tmp_path / "same", seed=2)
    filtering = ("--by", "score", "--out", tmp_path / "s.tsv")
    for command, options in (("check", ()), ("check", ("--calibrate",)), ("filter", filtering)):
        wrong = refused(capsys, command, lab / "there", *files, "--reverse", tmp_path / "same", *options)
        assert "translates en to de (its config.yaml says so); wanted de to en" in wrong
        assert "is given twice" in refused(capsys, command, lab / "there", *files, "--reverse", lab / "there", *options)
    assert not (tmp_path / "s.tsv.parts").exists()
