"""What the benchmark of word links compares: search and forced decoding of the same subwords."""

from __future__ import annotations

from argparse import Namespace

from benchmarks.links import agreement
from rela.decoding.translate import Translator
from tests.alignment.test_online import sharp_translator
from tests.tiny_models import toy_pairs


def segmented_otherwise(translator: Translator, lines: list[str]) -> list[str]:
    """The lines whose translation has other subwords than its text would be given."""
    found = translator.translate_nbest(lines, beam=4)
    encode = translator.subwords.encode
    return [line for line, (best,) in zip(lines, found, strict=True) if encode(best.text) != list(best.tokens)]


def test_links_of_words_that_search_spells_otherwise_are_equal():
    translator = sharp_translator("rela-g")
    lines = segmented_otherwise(translator, [source for source, _ in toy_pairs(20)])
    assert lines
    found = agreement(translator, lines, Namespace(beam=4, model="models/en-de"), "fp32")
    assert found == {"sentences compared": len(lines), "sentences with equal links": len(lines)}
