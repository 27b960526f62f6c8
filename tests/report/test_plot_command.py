"""The command that the page prints for a picture draws that picture, to the byte."""

import html
import inspect
import re
import shlex
from dataclasses import fields

import pytest

from rela.cli import main
from rela.commands.arguments import TextOptions
from rela.commands.look import analyse, plot
from rela.report.figures import PLOTTED
from rela.report.plot_command import option_words
from rela.toy import add_noise, generate, write_corpus
from tests.tiny_models import tiny_folder


def run(words):
    with pytest.raises(SystemExit) as exit:
        main([str(word) for word in words])
    assert not exit.value.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models; a text; another text with gold links that count from 1 and name the target first; noisy pairs."""
    folder = tmp_path_factory.mktemp("lab")
    tiny_folder(folder / "rela g" / "model")
    tiny_folder(folder / "soft", "softmax")
    toy = list(generate(9, seed=5))
    write_corpus(
        folder,
        {
            "test": toy,
            "gold": generate(5, seed=8),
            "bad": add_noise(toy, "insertion", 1),
            "other": add_noise(toy, "shuffled", 4),
        },
    )
    for name in ("test", "gold"):
        links = [line.split() for line in (folder / f"{name}.align").read_text().splitlines()]
        turned = [" ".join(f"{int(t) + 1}-{int(s) + 1}" for s, t in (x.split("-") for x in line)) for line in links]
        (folder / f"{name}.turned").write_text("\n".join(turned) + "\n")
    for side in ("en", "de"):  # brackets and commas are words of their own, as a tokeniser leaves them
        lines = (folder / f"gold.{side}").read_text().splitlines()
        (folder / f"gold.{side}").write_text("".join(f"{line} ( x ) ,\n" for line in lines))
    return folder


OPTIONS = {
    "own links": [
        "--gold",
        "test.turned",
        "--gold-one-based",
        "--gold-flipped",
        "--gold-tokenised",
        "--limit",
        7,
        "--seed",
        3,
        "--device",
        "cpu",
    ],
    "other links": [
        "--gold",
        "gold.turned",
        "--gold-one-based",
        "--gold-flipped",
        "--gold-tokenised",
        "--gold-source",
        "gold.en",
        "--gold-target",
        "gold.de",
        "--noise",
        "insertion=bad.en,bad.de",
        "--noise",
        "shuffled=other.en,other.de",
    ],
}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        pytest.param(OPTIONS["own links"], slice(0, None, 2), id="own links"),
        pytest.param(OPTIONS["other links"], slice(1, None, 2), id="other links"),
        pytest.param(["--gold", "test.align"], slice(None), id="plain", marks=pytest.mark.campaign),
    ],
)
def test_every_command_of_the_page_draws_the_picture_above_it(folder, tmp_path, monkeypatch, options, part):
    """All commands of a page carry the same options: each of two sets of options draws every other picture."""
    monkeypatch.chdir(folder)
    run(["analyse", "first=rela g/model", "soft", "test.en", "test.de", *options, "--examples", 1, "--out", tmp_path])
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    commands = [shlex.split(html.unescape(text)) for text in re.findall(r"<code>(rela plot .*?)</code>", page)]
    assert {words[2] for words in commands} == set(PLOTTED)
    assert len(commands) == 6 + 2 * (1 + 3), "one for each picture: six figures, heads and overviews of two models"
    for words in commands[part]:
        assert words[-2] == "--out"
        run([*words[1:-1], tmp_path / "alone" / words[-1]])
        for ending in ("png", "svg"):
            alone = (tmp_path / "alone" / f"{words[-1]}.{ending}").read_bytes()
            assert alone == (tmp_path / f"{words[-1]}.{ending}").read_bytes(), shlex.join(words)


def test_options_are_parameters_of_both_commands():
    names = {field.name for field in fields(TextOptions)}
    for command in (analyse, plot):
        assert names <= set(inspect.signature(command).parameters)


def test_words_of_options():
    values = {"gold_one_based": True, "gold_flipped": False, "limit": None, "seed": 3, "noise": ["a=b,c", "d=e,f"]}
    assert list(option_words(values)) == ["--gold-one-based", "--seed", "3", "--noise", "a=b,c", "--noise", "d=e,f"]
