"""Links read while translating are those of forced decoding, and translations stay what they are."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch

from rela.alignment.choose import AlignmentChoice, default_choice
from rela.alignment.online import OnlineLinks, written_words
from rela.alignment.punctuation import same_sort
from rela.analysis.record import END, AttentionRecord
from rela.config import Config, DecodeConfig
from rela.decoding.beam import Hypothesis
from rela.decoding.engines.gpu_search import Watch
from rela.decoding.pipeline import padded
from rela.decoding.translate import Translator
from rela.decoding.word_links import links_of
from rela.model.transformer import Transformer
from tests.tiny_models import HEADS, subwords, tiny_translator, toy_pairs

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
                source = translator.subwords.encode(line)
                forced = links.read(source, item.tokens, None)
                assert forced == same_sort(forced, line.split(), item.text.split())
                compared += len(forced)
                different += len(forced ^ item.links)
    assert compared > 12
    assert different <= (0.1 * compared if options.get("precision") == "int8" else 0)


def test_only_those_that_are_asked_for_have_links():
    translator = tiny_translator()
    assert translator.translate_nbest(["The dog sleeps ."])[0][0].links is None
    assert translator.translate_nbest([""], links=OnlineLinks(translator))[0][0].links == frozenset()


def test_links_of_search_on_the_gpu_are_those_of_search_by_steps():
    """Also of those with other words beside them; Triton's interpreter runs it here."""
    pytest.importorskip("triton")
    translator = sharp_translator("rela-g")
    links = OnlineLinks(translator, AlignmentChoice(1, (1, 0), True))
    options = {"beam": 2, "precision": "fp32", "max_length_ratio": 0.1, "max_length_extra": 2}
    by_graphs, by_steps = (
        translator.translate_nbest(["the dog sleeps .", "", "a cat"], 2, links, engine=engine, **options)
        for engine in ("graphs", "reference")
    )
    for one, other in zip(by_graphs, by_steps, strict=True):
        assert [(item.tokens, item.links) for item in one] == [(item.tokens, item.links) for item in other]
    assert any(item.links for group in by_steps for item in group)


def test_links_of_one_more_pass_are_those_of_each_translation():
    """As a search by steps on a GPU has them; an empty translation has none."""
    translator = sharp_translator("rela-g")
    links = OnlineLinks(translator, AlignmentChoice(1, (0, 1), True))
    sources = [translator.subwords.encode(line) for line in LINES[1:]]
    targets = [translator.subwords.encode(target) for _, target in toy_pairs(3)]
    found = [[Hypothesis(tuple(ids), 0.0, 0.0), Hypothesis(tuple(ids[:-1]), 0.0, 0.0)] for ids in targets]
    found[1].append(Hypothesis((), 0.0, 0.0))
    results = translator.pipeline.with_links(sources, found, Watch(links.layer, links.read_batch, links.heads))
    assert results == found, "links are not compared"
    assert results[1].pop().links is None, "left to `read`"
    for source, group in zip(sources, results, strict=True):
        assert [one.links for one in group] == [links.read(source, one.tokens, None) for one in group]
    assert any(one.links for group in results for one in group)


@pytest.mark.parametrize("shifted", [False, True])
def test_the_short_way_gives_what_the_choice_of_heads_gives(shifted):
    translator, generator = tiny_translator(), torch.Generator().manual_seed(1)
    choice = AlignmentChoice(0, (1, 0), shifted)
    links = OnlineLinks(translator, choice)
    for source, target in toy_pairs(6):
        ids = [translator.subwords.encode(text) for text in (source, target)]
        weights = torch.randn(HEADS, len(ids[1]) + 1, len(ids[0]) + 1, generator=generator).relu()
        weights[:, 2:4] = 0
        pieces = [(*translator.subwords.pieces(one), END) for one in ids]
        record = AttentionRecord("rela-g", "cross", weights[None], pieces[1], pieces[0])
        assert links.all_links(*ids, weights, "") == choice.links(record)


@pytest.mark.parametrize("heads", [(1, 0), None])
@pytest.mark.parametrize("shifted", [False, True])
def test_links_of_many_pairs_at_once_are_those_of_each(shifted, heads):
    translator, generator = tiny_translator(), torch.Generator().manual_seed(2)
    links = OnlineLinks(translator, AlignmentChoice(0, heads, shifted))
    pairs = [tuple(translator.subwords.encode(text) for text in pair) for pair in toy_pairs(6)]
    lone = [*translator.subwords.encode("dog"), translator.subwords.pieces(range(300)).index("▁")]
    pairs += [(pairs[0][0], lone), (pairs[0][0], [])]
    source, target = (padded([list(pair[side]) for pair in pairs], torch.device("cpu")) for side in (0, 1))
    weights = torch.randn(len(pairs), HEADS, target.size(1) + 1, source.size(1) + 1, generator=generator).relu()
    weights[:, :, 2:4] = 0
    best, is_read = links.read_batch(source, target, weights if heads is None else weights[:, list(heads)])
    assert is_read.tolist() == [True] * 6 + [False] * 2, "the last are left to `read`"
    left_out = 0
    for pair, one, row in zip(pairs[:6], weights, best.tolist(), strict=False):
        given = *pair, one[:, : len(pair[1]) + 1, : len(pair[0]) + 1]
        wanted = links.read(*given)
        assert links_of(True, row) == wanted
        assert wanted
        left_out += len(links.all_links(*given, "")) - len(wanted)
    assert left_out, "links of a word and a punctuation mark"


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


def test_empty_translations_alone_are_left_to_read():
    links = OnlineLinks(tiny_translator(), AlignmentChoice(0, (0,), True))
    nothing = torch.zeros(1, 0, dtype=torch.long)
    best, is_read = links.read_batch(torch.tensor([[5, 6]]), nothing, torch.ones(1, 1, 1, 3))
    assert best.shape == (1, 0)
    assert is_read.tolist() == [False]
