"""What the words of a command line mean: models by name, and the texts behind them."""

from pathlib import Path

import pytest

from rela.commands.arguments import models_and_texts, named_paths


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a/model", "b"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("s.en", "t.de"):
        (tmp_path / name).write_text("word\n")
    return tmp_path


@pytest.mark.usefixtures("place")
def test_files_behind_models_are_texts():
    assert models_and_texts(["a/model", "x=b"]) == (["a/model", "x=b"], None)
    assert models_and_texts(["a/model", "x=b", "s.en", "t.de"]) == (["a/model", "x=b"], (Path("s.en"), Path("t.de")))


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "words", ["s.en t.de", "b s.en", "b s.en gone", "s.en b t.de", "b s.en t.de s.en", "s.en t.de b"]
)
def test_one_text_or_texts_before_models_are_refused(words):
    with pytest.raises(ValueError, match=r"wanted MODEL\.\.\. SRC TGT"):
        models_and_texts(words.split())


@pytest.mark.usefixtures("place")
def test_models_are_named_after_their_folder():
    assert named_paths(["a/model", "b", "c=a/model"]) == {"a": "a/model", "b": "b", "c": "a/model"}
    with pytest.raises(ValueError, match="two are called b"):
        named_paths(["b", "b=a/model"])
