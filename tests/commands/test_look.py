"""The commands that look inside a model, as they are typed: output, files, and one line for what is wrong."""

import csv
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.commands.running import refused, run
from tests.forking import forked_group


def text(lab):
    return [str(lab / "test.en"), str(lab / "test.de")]


def test_analyse_compares_models(call, lab, tmp_path, monkeypatch):
    out = tmp_path / "report"
    words = ["analyse", lab / "rela-g" / "model", f"plain={lab / 'soft'}", *text(lab), "--gold", lab / "test.align"]
    words += ["--out", out, "--examples", 0, "--limit", 6]
    monkeypatch.setattr(sys, "argv", ["rela", *map(str, words)])  # what the report says it was made by
    code, printed, errors = call(*words)
    assert code == 0, errors
    assert printed.strip().endswith("index.html")
    settings = json.loads((out / "report.json").read_text())["settings"]
    assert list(settings["models"]) == ["rela-g", "plain"]
    assert settings["pairs"] == settings["gold"] == 6
    assert settings["command"].startswith("rela analyse ")
    with open(out / "table5_aer.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["model"] for row in table] == ["rela-g", "plain"]
    assert all(0 <= float(row["shifted_aoh"]) <= 1 for row in table)


def test_a_report_wants_a_folder_and_says_so_first(call, lab, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, errors = call("analyse", lab / "soft", *text(lab), "--out", tmp_path / "file")
    assert (code, errors) == (2, f"rela: error: {tmp_path / 'file'} is no folder; wanted one, or a new name\n")
    assert (tmp_path / "file").read_text() == "mine"


def test_pairs_that_cannot_be_measured_are_left_out_and_named(call, lab, tmp_path):
    source, target, gold = (lab / f"test.{ending}" for ending in ("en", "de", "align"))
    files = [tmp_path / name for name in ("s.en", "t.de", "gold")]
    for path, file, extra in zip(
        (source, target, gold), files, (["", "dog " * 200], ["leer", "Hund"], ["", "0-0"]), strict=True
    ):
        lines = path.read_text(encoding="utf-8").splitlines()
        file.write_text("\n".join([*lines[:3], *extra, *lines[3:]]) + "\n", encoding="utf-8")
    tables, said = [], []
    for pair, links, out in (((source, target), gold, "whole"), (files[:2], files[2], "holes")):
        code, _, errors = call(
            "analyse", lab / "soft", *pair, "--gold", links, "--examples", 0, "--out", tmp_path / out
        )
        assert code == 0
        said += [line for line in errors.splitlines() if "warning" in line]
        tables.append((tmp_path / out / "table5_aer.csv").read_text())
    assert tables[0] == tables[1]
    assert said == [f"rela: warning: 2 pairs left out, the first: {files[0]} and t.de, line 4: empty"]


def test_a_report_counts_lines_as_the_files_do(call, lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, extra in (("test.en", ["", "dog " * 200]), ("test.de", ["leer", "Hund"])):
        lines = (lab / name).read_text(encoding="utf-8").splitlines()
        (tmp_path / name).write_text("\n".join([*extra, *lines]) + "\n", encoding="utf-8")
    model = lab / "rela-g" / "model"
    assert call("analyse", model, *text(lab), "--examples", 0, "--out", "whole")[0] == 0
    assert call("analyse", model, *text(tmp_path), "--examples", 8, "--out", "holes")[0] == 0
    whole, holes = (list(csv.DictReader(Path(out, "pairs.csv").read_text().splitlines())) for out in ("whole", "holes"))
    assert holes == [{**row, "line": str(int(row["line"]) + 2)} for row in whole]
    page = Path("holes/index.html").read_text()
    (command,) = re.findall("<code>(rela plot heads [^<]* --line 10 [^<]*)</code>", page)
    assert call(*shlex.split(command)[1:])[0] == 0
    name = "figure7_1_rela-g_line10.png"
    assert Path(name).read_bytes() == Path("holes", name).read_bytes(), "the command draws the picture above it"


@pytest.mark.parametrize(
    ("figure", "options", "written"),
    [
        ("heads", ["--line", 2, "--layer", 1, "--out", "a"], ["a.png", "a.svg"]),
        ("overview", ["--type", "decoder", "--out", "b.svg"], ["b.svg"]),
        ("sparsity", ["--out", "c.PNG"], ["c.png"]),
        ("null-rate", ["--limit", 3, "--out", "v1.5"], ["v1.5.png", "v1.5.svg"]),
    ],
)
def test_plot_draws_one_figure(lab, tmp_path, monkeypatch, capsys, figure, options, written):
    monkeypatch.chdir(tmp_path)
    run("plot", figure, lab / "rela-g" / "model", *text(lab), *options)
    assert capsys.readouterr().out.split() == written
    assert sorted(path.name for path in tmp_path.iterdir()) == written


def test_plot_refuses_what_it_cannot_draw(lab, tmp_path, capsys):
    model = lab / "soft"
    assert "there is no figure 'pie'" in refused(capsys, "plot", "pie", model, *text(lab), "--out", "x")
    assert "line 9 of a text of 8" in refused(capsys, "plot", "heads", model, *text(lab), "--line", 9, "--out", "x")
    assert "layer 7 of" in refused(capsys, "plot", "heads", model, *text(lab), "--layer", 7, "--out", "x")
    assert "head 0 of" in refused(capsys, "plot", "heads", model, *text(lab), "--head", 0, "--out", "x")
    assert "--gold" in refused(capsys, "plot", "aer", model, *text(lab), "--out", "x")
    other = ["--gold", lab / "test.align", "--gold-source", lab / "test.en", "--gold-target", lab / "test.de"]
    wrong = refused(capsys, "plot", "aer", model, *text(lab), *other, "--tokenised", "--out", "x")
    assert "wanted --gold-tokenised" in wrong
    assert "NAME=" in refused(capsys, "plot", "heads", model, model, *text(lab), "--out", "x")
    assert "lacks a name" in refused(capsys, "plot", "heads", f"={model}", *text(lab), "--out", "x")
    assert "examples is -1" in refused(capsys, "analyse", model, *text(lab), "--examples", -1, "--out", tmp_path / "r")
    (tmp_path / "x.png").mkdir()
    wrong = refused(capsys, "plot", "heads", model, *text(lab), "--out", tmp_path / "x.png")
    assert f"{tmp_path / 'x.png'}: " in wrong, "the name that was asked for, and not a temporary one"


def test_filter_on_two_processes_is_filter_on_one(call, lab, tmp_path):
    arguments = [
        lab / "rela-g" / "model",
        lab / "test.en",
        lab / "test.de",
        "--by",
        "both",
        "--keep",
        0.5,
        "--page",
        "--device",
        "cpu",
    ]
    code, one, errors = call("filter", *arguments, "--out", tmp_path / "one.tsv")
    assert code == 0, errors
    both = forked_group(2 * [["filter", *arguments, "--out", tmp_path / "two.tsv"]])
    (two, errors), (nothing, more) = (process.communicate() for process in both)
    assert [process.returncode for process in both] == [0, 0], (errors, more)
    assert (two, nothing) == (one, ""), "one process speaks"
    assert "kept 4 pairs" in one
    for ending in (".tsv", ".html", ".kept.source", ".kept.target", ".summary.json"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()


def test_filter_refuses_before_it_scores(lab, tmp_path, capsys):
    arguments = [lab / "soft", lab / "test.en", lab / "test.de", "--out", tmp_path / "s.tsv"]
    assert "by is 'size'" in refused(capsys, "filter", *arguments, "--by", "size")
    assert "wanted one of them" in refused(capsys, "filter", *arguments, "--keep", 0.5, "--threshold", 0.5)
    assert "belong together" in refused(capsys, "filter", *arguments, "--kept-source", "x")
    assert "--keep or --threshold too" in refused(
        capsys, "filter", *arguments, "--kept-source", "x", "--kept-target", "y"
    )
    assert "wanted one of them" in refused(capsys, "filter", *arguments, "--ranked", "--text")
    assert "sample is -3" in refused(capsys, "filter", *arguments, "--page", "--sample", -3)
    assert "is not a model folder" in refused(capsys, "filter", tmp_path / "none", *arguments[1:])
    assert list(tmp_path.iterdir()) == []


def test_filter_writes_over_nothing_that_is_needed(lab, tmp_path, capsys):
    corpus = [lab / "test.en", lab / "test.de"]
    before = [path.read_bytes() for path in corpus]
    start = ["filter", lab / "soft", *corpus, "--keep", 0.5, "--out"]
    assert "is an input" in refused(capsys, *start, lab / "soft" / ".." / "test.de")
    kept = ["--kept-source", corpus[0], "--kept-target", tmp_path / "kept"]
    assert "test.en is an input" in refused(capsys, *start, tmp_path / "s.tsv", *kept)
    assert "are one file" in refused(capsys, *start, tmp_path / "s.html", "--page")
    assert "Is a directory" in refused(capsys, *start, tmp_path)
    assert [path.read_bytes() for path in corpus] == before
    assert list(tmp_path.iterdir()) == []
