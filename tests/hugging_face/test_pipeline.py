"""The translation pipeline gives our translations, for one text and for several."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import rela
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


@pytest.mark.campaign  # transformers looks at each of its processors for the right one: ten seconds
def test_the_factory_finds_it(folder: Path):
    rela.register_transformers()
    check(transformers.pipeline(TASK, model=str(folder)))


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"need transformers: pip install 'rela-attention\[hf\]'"):
        rela.register_transformers()
