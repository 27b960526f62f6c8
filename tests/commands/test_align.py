"""`rela align`, `rela fit-aligner` and `rela aer`, as they are typed."""

import io
import json
import os

import pytest

from rela.alignment.joint import JOINT, save_joint
from rela.toy import generate, write_corpus
from tests.commands.running import refused, run
from tests.tiny_models import BACK, tiny_folder, tiny_joint


def test_align_then_aer(lab, tmp_path, capsys):
    files = (lab / "test.en", lab / "test.de")
    dev = ["--dev-source", files[0], "--dev-target", files[1], "--dev-gold", lab / "test.align"]
    run("align", lab / "rela-g" / "model", *files, *dev, "--out", tmp_path / "links")
    error = capsys.readouterr().err
    assert "layer" in error
    chosen = json.loads((lab / "rela-g" / "model" / "alignment.json").read_text())
    run("aer", tmp_path / "links", lab / "test.align", "--format", "json", "--bootstrap", 50)
    judged = json.loads(capsys.readouterr().out)
    assert judged["aer"] == pytest.approx(chosen["aer"])
    assert judged["interval"][0] < judged["aer"] < judged["interval"][1]
    run("align", lab / "rela-g" / "model", *files)  # the choice is remembered
    assert capsys.readouterr().out == (tmp_path / "links").read_text()


def test_align_in_both_directions(lab, tmp_path, capsys):
    files = (lab / "test.en", lab / "test.de")
    tiny_folder(tmp_path / "soft", "softmax", languages=BACK)
    found = {}
    for method in ("intersection", "grow-diag", "grow-diag-final-and", "union"):
        run("align", lab / "rela-g" / "model", *files, "--reverse", tmp_path / "soft", "--symmetrise", method)
        found[method] = [set(line.split()) for line in capsys.readouterr().out.split("\n")[:-1]]
    assert all(len(lines) == 8 for lines in found.values())
    for smaller, larger in (
        ("intersection", "grow-diag"),
        ("grow-diag", "grow-diag-final-and"),
        ("grow-diag-final-and", "union"),
    ):
        assert all(a <= b for a, b in zip(found[smaller], found[larger], strict=True))


def test_a_reverse_model_of_the_same_direction_is_refused(lab, tmp_path, capsys):
    model, files = lab / "rela-g" / "model", (lab / "test.en", lab / "test.de")
    for command in ("align", "fit-aligner"):
        wrong = refused(capsys, command, model, *files, "--reverse", lab / "soft")
        assert f"the reverse model {lab / 'soft'} translates en to de" in wrong
        assert "wanted de to en" in wrong
        assert "is given twice" in refused(capsys, command, model, *files, "--reverse", model.parent)
    tiny_folder(tmp_path / "fr", languages=("fr", "en"))
    assert "wanted de to en" in refused(capsys, "align", model, *files, "--reverse", tmp_path / "fr")


def test_heads_are_chosen_on_the_text_and_kept_by_fit_aligner(tmp_path, lab, capsys):
    files = (lab / "test.en", lab / "test.de")
    tiny_folder(tmp_path / "there")
    tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    both = (tmp_path / "there", *files, "--reverse", tmp_path / "back")
    run("align", *both)
    links, error = capsys.readouterr()
    assert error.count("chosen on this text") == 2
    run("fit-aligner", *both)
    printed = capsys.readouterr().out
    assert printed.count("two directions, no gold links") == 2
    for name in ("there", "back"):
        kept = json.loads((tmp_path / name / "alignment.json").read_text())
        assert kept["chosen_by"] == "two directions"
        assert 0 < kept["agreement"] < 1
    run("align", *both)
    assert capsys.readouterr() == (links, "")
    run("align", *both, "--symmetrise", "grow-diag-final-and")
    assert capsys.readouterr().out == links, "what is not said is grow-diag-final-and"


def test_a_trained_aligner_of_two_models_is_used_with_both(tmp_path, lab, capsys):
    files = (lab / "test.en", lab / "test.de")
    tiny_folder(tmp_path / "there")
    for name, seed in (("back", 2), ("third", 3)):
        tiny_folder(tmp_path / name, seed=seed, languages=BACK)
    both = (tmp_path / "there", *files, "--reverse", tmp_path / "back")
    run("fit-aligner", *both)
    choices = [(tmp_path / name / "alignment.json").read_text() for name in ("there", "back")]
    capsys.readouterr()
    assert "no trained aligner with the reverse model" in refused(capsys, "align", *both, "--aligner", "fitted")
    capsys.readouterr()
    run("fit-aligner", *both, "--train", "--steps", 2)
    assert "trained aligner of both" in capsys.readouterr().out
    assert [(tmp_path / name / "alignment.json").read_text() for name in ("there", "back")] == choices
    alone = refused(capsys, "align", tmp_path / "there", *files, "--aligner", "fitted")
    assert "a trained aligner of two models; wanted --reverse MODEL too" in alone
    found = {}
    for aligner in ("heads", "fitted", None):
        run("align", *both, *(() if aligner is None else ("--aligner", aligner)))
        found[aligner] = capsys.readouterr().out
    assert found[None] == found["fitted"] != found["heads"]
    turned = (tmp_path / "back", files[1], files[0], "--reverse", tmp_path / "there", "--symmetrise", "intersection")
    run("align", *both, "--symmetrise", "intersection")
    links = capsys.readouterr().out
    run("align", *turned)
    flipped = [{tuple(link.split("-")[::-1]) for link in line.split()} for line in links.splitlines()]
    assert [
        {tuple(link.split("-")) for link in line.split()} for line in capsys.readouterr().out.splitlines()
    ] == flipped
    run("align", tmp_path / "there", *files)
    assert capsys.readouterr().err == "", "one model of the two is read by its heads"
    run("fit-aligner", tmp_path / "third", files[1], files[0], "--reverse", tmp_path / "there", "--train", "--steps", 2)
    capsys.readouterr()
    assert "are not of one training" in refused(capsys, "align", *both)


def test_align_says_if_one_of_two_folders_has_lost_the_trained_aligner(tmp_path, lab, capsys):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    both = (tmp_path / "there", lab / "test.en", lab / "test.de", "--reverse", tmp_path / "back")
    run("fit-aligner", *both)
    save_joint(tiny_joint(there, back))
    (tmp_path / "there" / JOINT).unlink()
    for more, said in (((), True), (("--aligner", "heads"), False), (("--layer", 1), False)):
        capsys.readouterr()
        run("align", *both, *more)
        assert ("there has none: links are those of the heads" in capsys.readouterr().err) == said


def test_fit_aligner_says_if_there_are_few_pairs(tmp_path, capsys):
    tiny_folder(tmp_path / "model")
    write_corpus(tmp_path, {"text": generate(20, seed=5)})
    for more, said in (((), ""), (("--pairs", 1), "on 1 pair may be"), (("--pairs", 19), "on 19 pairs may be")):
        run("fit-aligner", tmp_path / "model", tmp_path / "text.en", tmp_path / "text.de", *more)
        error = capsys.readouterr().err
        assert said in error
        assert bool(error) == bool(said)


def test_a_choice_by_gold_links_is_kept_for_both_models_or_for_none(tmp_path, lab, capsys, monkeypatch):
    for name, seed, languages in (("there", 1, ("en", "de")), ("back", 2, BACK)):
        tiny_folder(tmp_path / name, seed=seed, languages=languages)
    closed, access = (str(tmp_path / "back"), os.W_OK), os.access  # as for a user who is not root
    monkeypatch.setattr(os, "access", lambda path, mode, **more: (str(path), mode) != closed and access(path, mode))
    files = (lab / "test.en", lab / "test.de")
    dev = ("--dev-source", files[0], "--dev-target", files[1], "--dev-gold", lab / "test.align")
    error = refused(capsys, "align", tmp_path / "there", *files, "--reverse", tmp_path / "back", *dev)
    assert "back/alignment.json: Permission denied" in error
    assert not (tmp_path / "there" / "alignment.json").exists()


def test_an_aligner_learns_from_a_pipe_what_it_learns_from_files(tmp_path, lab, capsys, monkeypatch):
    files = (lab / "test.en", lab / "test.de")
    lines = zip(*(file.read_text().splitlines() for file in files), strict=True)
    tabbed = "".join("\t".join(pair) + "\n" for pair in lines).encode()
    weights = []
    for name, texts in (("one", files), ("two", ("-", "-"))):
        tiny_folder(tmp_path / name)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(tabbed)))
        run("fit-aligner", tmp_path / name, *texts, "--train", "--steps", 2, "--pairs", 4)
        weights.append((tmp_path / name / "aligner.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_trained_aligner_is_used_where_there_is_one(tmp_path, lab, capsys):
    files = (lab / "test.en", lab / "test.de")
    tiny_folder(tmp_path / "model")
    model = tmp_path / "model"
    assert "run rela fit-aligner --train" in refused(capsys, "align", model, *files, "--aligner", "fitted")
    run("fit-aligner", model, *files, "--train", "--steps", 2)
    assert "trained aligner on decoder state" in capsys.readouterr().out
    found = {}
    for aligner in ("heads", "fitted", None):
        run("align", model, *files, *(() if aligner is None else ("--aligner", aligner)))
        found[aligner] = capsys.readouterr().out
    assert found[None] == found["fitted"] != found["heads"]
    run("align", model, *files, "--symmetrise", "product")
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert "leave out --aligner" in refused(capsys, "align", model, *files, "--aligner", "fitted", "--layer", 1)
    assert "wanted heads or fitted" in refused(capsys, "align", model, *files, "--aligner", "best")
    assert "--train too" in refused(capsys, "fit-aligner", model, *files, "--steps", 2)


def test_one_model_is_symmetrised_with_itself(lab, capsys):
    found = []
    for more in ((), ("--symmetrise", "union"), ("--symmetrise", "intersection")):
        run("align", lab / "soft", lab / "test.en", lab / "test.de", "--layer", 1, "--head", 1, "--head", 2, *more)
        found.append([set(line.split()) for line in capsys.readouterr().out.splitlines()])
    for rows, union, both in zip(*found, strict=True):
        assert both <= rows < union


def test_align_refuses(lab, tmp_path, capsys):
    files = (lab / "test.en", lab / "test.de")
    assert "belong together" in refused(capsys, "align", lab / "soft", *files, "--dev-gold", lab / "test.align")
    assert "symmetrise is 'best'" in refused(capsys, "align", lab / "soft", *files, "--symmetrise", "best")
    assert "layers 1 to 2" in refused(capsys, "align", lab / "soft", *files, "--layer", 3)
    assert "layers 1 to 2" in refused(capsys, "align", lab / "soft", *files, "--layer", 0)
    assert "--layer too" in refused(capsys, "align", lab / "soft", *files, "--head", 1)
    assert "--layer too" in refused(capsys, "align", lab / "soft", *files, "--no-shifted")
    assert "none of them twice" in refused(
        capsys, "align", lab / "soft", *files, "--layer", 1, "--head", 1, "--head", 1
    )
    assert "number of pairs" in refused(capsys, "fit-aligner", lab / "soft", *files, "--pairs", 0)
    (tmp_path / "few").write_text("0-0\n")
    dev = ["--dev-source", files[0], "--dev-target", files[1], "--dev-gold", tmp_path / "few"]
    assert "gold links of 1 sentences for 8 pairs" in refused(capsys, "align", lab / "soft", *files, *dev)
    assert "is a directory" in refused(capsys, "align", lab / "soft", *files, "--out", tmp_path).lower()
    assert [path.name for path in tmp_path.iterdir()] == ["few"]


def test_aer_of_gold_is_zero_in_either_counting(lab, tmp_path, capsys):
    run("aer", lab / "test.align", lab / "test.align")
    assert capsys.readouterr().out.startswith("AER 0.00  precision 100.00  recall 100.00")
    lines = (lab / "test.align").read_text().splitlines()
    from_one = [" ".join("-".join(str(int(n) + 1) for n in link.split("-")) for link in line.split()) for line in lines]
    (tmp_path / "one").write_text("\n".join(from_one) + "\n")
    run("aer", lab / "test.align", tmp_path / "one", "--gold-one-based")
    assert capsys.readouterr().out.startswith("AER 0.00")
    run("aer", lab / "test.align", tmp_path / "one")
    assert not capsys.readouterr().out.startswith("AER 0.00")
    (tmp_path / "short").write_text(lines[0] + "\n")
    assert "sentence 2 has no hypothesis" in refused(capsys, "aer", tmp_path / "short", lab / "test.align")
    (tmp_path / "empty").write_text("")
    assert "no sentence" in refused(capsys, "aer", tmp_path / "empty", tmp_path / "empty")


def test_a_bootstrap_without_end_is_refused(fails, tmp_path):
    (tmp_path / "links").write_text("0-0\n")
    for draws in (-1, 10**25):
        fails("aer", tmp_path / "links", tmp_path / "links", "--bootstrap", draws, named=f"bootstrap is {draws}")
