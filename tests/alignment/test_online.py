"""Links read while translating are those of forced decoding, and translations stay what they are."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch

from rela.alignment.choose import default_choice
from rela.alignment.online import OnlineLinks, written_words
from rela.config import Config, DecodeConfig
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer
from tests.tiny_models import subwords, tiny_translator, toy_pairs

LINES = ["", *(source for source, _ in toy_pairs(3))]
SEARCHES = [
    {"beam": 3, "batch_tokens": 40},
    {"beam": 1},
    {"beam": 3, "precision": "int8"},
    {"sampling": True, "seed": 3},
]


@cache
def sharp_translator(kind: str) -> Translator:
    """A model that says many words, and whose heads prefer one clearly: no link is decided by the last bits."""
    shape = dataclasses.replace(tiny_translator(kind).config.model, tied_embeddings="none")
    torch.manual_seed(5)  # after the other model, which draws its own weights unless it is there already
    model = Transformer(shape)
    with torch.no_grad():
        model.output.weight *= 3
        for layer in model.decoder:
            layer.cross.in_proj_weight[: 2 * shape.width] *= 3
    decode = DecodeConfig(max_length_ratio=0.6, max_length_extra=2)
    return Translator(model, subwords(), Config(model=shape, decode=decode), "cpu")


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
def test_links_are_those_of_forced_decoding(kind, options):
    """Of every hypothesis, and asking for them changes none. int8 rounds otherwise than the forced pass in float32."""
    translator = sharp_translator(kind)
    nbest, compared, different = options.get("beam", 2), 0, 0
    plain = translator.translate_nbest(LINES, nbest, **options)
    for layer, shifted in ((1, True), (0, False)):
        links = OnlineLinks(translator, dataclasses.replace(default_choice(2), layer=layer, shifted=shifted))
        for line, group, without in zip(
            LINES, translator.translate_nbest(LINES, nbest, links, **options), plain, strict=True
        ):
            assert [dataclasses.replace(item, links=None) for item in group] == without
            for item in group:
                forced = links.read(translator.subwords.encode(line), item.tokens, None)
                compared += len(forced)
                different += len(forced ^ item.links)
    assert compared > 12
    assert different <= (0.1 * compared if options.get("precision") == "int8" else 0)


def test_only_those_that_are_asked_for_have_links():
    translator = tiny_translator()
    assert translator.translate_nbest(["The dog sleeps ."])[0][0].links is None
    assert translator.translate_nbest([""], links=OnlineLinks(translator))[0][0].links == frozenset()


def test_search_on_the_gpu_falls_back_to_forced_decoding():
    """Its weights never leave the device; Triton's interpreter runs it here."""
    pytest.importorskip("triton")
    translator = tiny_translator("softmax")
    links = OnlineLinks(translator)
    options = {"beam": 2, "precision": "fp32", "max_length_ratio": 0.1, "max_length_extra": 1}
    by_graphs, by_steps = (
        translator.translate_nbest(["dog"], 1, links, engine=engine, **options)[0][0]
        for engine in ("graphs", "reference")
    )
    assert by_graphs.tokens == by_steps.tokens
    assert by_graphs.links == by_steps.links


def test_words_are_those_of_the_text():
    """A lone ▁ spells nothing, wherever search puts it."""
    pieces = ("▁", "▁Hund", "e", "▁", "▁schläft")
    links = frozenset({(0, 0), (1, 1), (2, 2), (3, 3)})
    assert written_words(links, pieces) == {(1, 0), (3, 1)}
    assert written_words(frozenset({(0, 1)}), ("▁a", "▁b")) == {(0, 1)}


def test_links_stay_within_the_words():
    translator = sharp_translator("rela-g")
    for line, (item,) in zip(LINES, translator.translate_nbest(LINES, 1, OnlineLinks(translator)), strict=True):
        for source, target in item.links:
            assert source < len(line.split())
            assert target < len(item.text.split())


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_no_break_space_is_inside_a_word_while_translating_too(precision):
    """As `rela align` counts words; a document's words are those of `str.split`."""
    translator = sharp_translator("rela-g")
    line = LINES[1].replace(" ", "\u00a0", 1)
    ((plain,), (joined,)) = translator.translate_nbest(
        [LINES[1], line], 1, OnlineLinks(translator), precision=precision
    )
    ((split,),) = translator.translate_nbest([line], 1, OnlineLinks(translator, no_break_splits=True), precision="fp32")
    assert plain.text == joined.text
    assert plain.links is not None
    assert joined.links is not None
    assert max(i for i, _ in joined.links) == max(i for i, _ in plain.links) - 1
    assert {(i - 1, j) for i, j in plain.links if i > 1} <= joined.links | {(0, j) for _, j in joined.links}
    if precision == "fp32":
        assert split.links == plain.links
        forced = OnlineLinks(translator).read(subwords().encode(line), joined.tokens, None, line)
        assert joined.links == forced
