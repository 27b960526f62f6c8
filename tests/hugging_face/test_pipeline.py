"""The translation pipeline gives our translations, for one text and for several."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rela
from rela.config import DecodeConfig
from rela.decoding.translate import Translator
from tests.tiny_models import tiny_folder, tiny_translator

transformers = pytest.importorskip("transformers")

from rela.hugging_face.convert import to_hugging_face  # noqa: E402
from rela.hugging_face.pipeline import TASK, TranslationPipeline  # noqa: E402

TEXT = "The dog is sleeping ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pipeline")
    tiny_folder(root / "ours")
    return to_hugging_face(root / "ours", root / "theirs")


def check(translate: Any) -> None:
    (one,) = translate(TEXT, num_beams=1)
    assert one["translation_text"] == tiny_translator().translate([TEXT], beam=1)[0]
    two = translate([TEXT, "A cat ."], max_new_tokens=5)
    assert [list(item) for item in two] == [["translation_text"]] * 2
    (several,) = translate([TEXT], max_new_tokens=5, num_beams=2, num_return_sequences=2)
    assert len(several) == 2


def test_texts_are_translated(folder: Path):
    from rela.hugging_face import auto

    importlib.reload(auto)  # once more does no harm
    assert TASK in transformers.pipelines.PIPELINE_REGISTRY.supported_tasks
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    check(TranslationPipeline(model, tokenizer=transformers.AutoTokenizer.from_pretrained(folder)))


@pytest.mark.parametrize(
    "decode",
    [
        DecodeConfig(beam=1, min_length=30, no_repeat_ngram=2, max_length_ratio=0.1, max_length_extra=0),
        DecodeConfig(beam=2, min_length=119, max_length_extra=200),
    ],
)
def test_translations_are_held_to_what_the_config_says(decode: DecodeConfig, tmp_path: Path):
    """A least length that is above the greatest one, and no pair of subwords twice; as long as positions allow."""
    plain = tiny_translator()
    Translator(plain.model, plain.subwords, replace(plain.config, decode=decode), "cpu").save(tmp_path / "ours")
    theirs = to_hugging_face(tmp_path / "ours", tmp_path / "theirs")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(theirs)
    translate = TranslationPipeline(model, tokenizer=transformers.AutoTokenizer.from_pretrained(theirs))
    wanted = Translator.load(tmp_path / "ours", "cpu").translate([TEXT])
    assert [one["translation_text"] for one in translate([TEXT])] == wanted
    assert wanted != plain.translate([TEXT], beam=1)


@pytest.mark.campaign  # transformers looks at each of its processors for the right one: ten seconds
def test_the_factory_finds_it(folder: Path):
    rela.register_transformers()
    check(transformers.pipeline(TASK, model=str(folder)))


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"need transformers: pip install 'rela-attention\[hf\]'"):
        rela.register_transformers()
