"""The payload says what the record says: values to a step, zeros and null rows exactly, figures as measured."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rela.analysis.ablation import without_heads
from rela.analysis.capture import capture
from rela.analysis.links import head_links, layer_links
from rela.analysis.nulls import null_rate, null_rows
from rela.analysis.record import END, START, TYPES
from rela.analysis.sink import sink_mass
from rela.analysis.sparsity import sparsity_rate
from rela.analysis.words import merge_record
from rela.evaluation.alignment import GoldLinks, alignment_error_rate
from rela.explorer.payload import SIGNED_STEPS, STEPS, dequantise, quantise, reach, view_pair
from tests.tiny_models import HEADS, LAYERS, tiny_translator, toy_pairs

KINDS = ("rela-g", "softmax", "rela-g-leaky")
HALF_A_DIGIT = 0.50001e-4  # figures keep four decimals
(PAIR,) = toy_pairs(1, seed=8)


@pytest.fixture(scope="module", params=KINDS)
def both(request):
    """A view and the records it was made of."""
    translator = tiny_translator(request.param)
    (records,) = capture(translator, [PAIR])
    return view_pair(translator, "tiny", *PAIR), records


def levels(view, records):
    """Each level of a view, with a record of its heads and, behind them, of the mean of each layer's heads."""
    cross = records["cross"]
    later = dataclasses.replace(cross, weights=cross.weights[:, :, 1:], queries=cross.queries[:-1])
    for type, record in {**{type: records[type] for type in TYPES}, "shifted": later}.items():
        mean = record.weights.mean(1, keepdim=True)
        record = dataclasses.replace(record, weights=torch.cat([record.weights, mean], 1))
        yield view.attention[type], view.attention[type].subword, record
        yield view.attention[type], view.attention[type].word, merge_record(record)


def test_weights_come_back_to_a_step(both):
    for attention, level, record in levels(*both):
        weights = record.weights.double().numpy()
        found = dequantise(level, attention.layers, attention.heads)
        step = np.abs(weights).max(axis=(-2, -1), keepdims=True) / (SIGNED_STEPS if level.signed else STEPS)
        # Half a step of rounding, a whole one for what would have been rounded to zero; `largest` keeps six digits.
        allowed = np.where(np.abs(weights) >= step, 0.5 * step, step) * 1.001 + 1e-5 * np.abs(weights)
        assert (np.abs(found - weights) <= allowed).all()


def test_zeros_and_null_rows_are_exact(both):
    for attention, level, record in levels(*both):
        found = dequantise(level, attention.layers, attention.heads)
        assert ((found == 0) == (record.weights == 0).numpy()).all()
        assert ((found == 0).all(-1) == null_rows(record).numpy()).all()


def test_there_are_null_rows_to_be_kept():
    (records,) = capture(tiny_translator("rela-g"), [PAIR])
    assert any(null_rows(records[type]).any() for type in TYPES)


def test_figures_are_the_measures(both):
    for attention, level, record in levels(*both):
        sink = START if record.type == "decoder" else END
        assert attention.sink == sink
        measured = {"sparsity": sparsity_rate(record), "null_rate": null_rate(record), "sink": sink_mass(record, sink)}
        for name, values in measured.items():
            assert np.abs(np.array(getattr(level, name)) - values.numpy()).max() <= HALF_A_DIGIT, name
        largest = record.weights.abs().amax((-2, -1)).numpy()
        assert np.allclose(level.largest, largest, rtol=1e-5, atol=0)


def test_words_and_pieces_name_both_sides(both):
    view, records = both
    source, target = (text.split() for text in PAIR)
    names = {
        "encoder": ([*source, END], [*source, END]),
        "decoder": ([*target, END], [START, *target]),
        "cross": ([*target, END], [*source, END]),
    }
    for type, (queries, keys) in names.items():
        attention = view.attention[type]
        assert (attention.word.queries, attention.word.keys) == (queries, keys)
        assert tuple(attention.subword.queries) == records[type].queries  # every character of the toy corpus is known
        assert tuple(attention.subword.keys) == records[type].keys
        assert (attention.kind, attention.layers, attention.heads) == (records[type].kind, LAYERS, HEADS)


def test_reach_is_what_is_allowed(both):
    view, records = both
    assert view.attention["decoder"].subword.reach == list(range(1, len(records["decoder"].queries) + 1))
    assert view.attention["decoder"].word.reach == merge_record(records["decoder"]).allowed.sum(-1).tolist()
    assert view.attention["encoder"].word.reach is None
    assert view.attention["cross"].subword.reach is None


def test_reach_refuses_a_mask_that_is_no_triangle():
    with pytest.raises(ValueError, match="query 0"):
        reach(torch.tensor([[False, True], [True, True]]))


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, (2, 2, 3, 4), elements=st.floats(-4, 4, width=32) | st.just(0.0)))
def test_quantised_weights_keep_sign_zero_and_order(values):
    codes, largest, signed = quantise(torch.from_numpy(values))
    sizes = codes.astype(int) - (SIGNED_STEPS + 1 if signed else 0)
    assert signed == bool((values < 0).any())
    assert (np.sign(sizes) == np.sign(values)).all()
    assert np.array_equal(largest, np.abs(values).max((-2, -1)))
    for one, weights in zip(sizes.reshape(4, -1), values.reshape(4, -1), strict=True):
        order = np.argsort(weights, kind="stable")
        assert (np.diff(one[order]) >= 0).all()
        if weights.any():
            assert np.abs(one).max() == (SIGNED_STEPS if signed else STEPS)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value):
    weights = torch.zeros(1, 1, 2, 2)
    weights[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match="finite"):
        quantise(weights)


def test_the_payload_is_plain_json(both):
    view, _ = both
    data = json.loads(json.dumps(view.to_dict(), allow_nan=False))
    assert data["schema"] == view.schema
    assert data["attention"]["cross"]["word"]["queries"] == view.attention["cross"].word.queries
    assert (data["source"], data["target"], data["forced"]) == (*PAIR, True)


def test_the_log_probability_is_the_models(both):
    view, records = both
    translator = tiny_translator(records["cross"].kind)
    assert abs(view.log_prob - translator.score([PAIR[0]], [PAIR[1]])[0].log_prob) <= HALF_A_DIGIT


def test_the_log_probabilities_of_words_are_sums_of_their_subwords(both):
    view, records = both
    scored = tiny_translator(records["cross"].kind).score([PAIR[0]], [PAIR[1]])[0]
    assert np.abs(np.array(view.log_probs["subword"]) - scored.log_probs).max() <= HALF_A_DIGIT
    assert len(view.log_probs["word"]) == len(PAIR[1].split()) + 1
    assert abs(sum(view.log_probs["word"]) - view.log_prob) <= HALF_A_DIGIT * (len(PAIR[1].split()) + 2)


@pytest.mark.parametrize("target", [None, PAIR[1]])
def test_heads_that_are_off_change_the_translation(target):
    translator = tiny_translator("rela-g")
    off = [("cross", layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    view, plain = (view_pair(translator, "tiny", PAIR[0], target, off=heads) for heads in (off, []))
    found = view.ablation
    assert found.off == off
    assert found.translation == without_heads(translator, off).translate([PAIR[0]])[0] != found.translation_before
    assert found.translation_before == translator.translate([PAIR[0]])[0]
    assert view.target == (found.translation if target is None else target)
    before = translator.score([PAIR[0]], [view.target])[0].log_prob
    assert abs(found.log_prob_before - before) <= HALF_A_DIGIT
    assert view.log_prob != found.log_prob_before
    assert plain.ablation is None


def test_words_are_those_of_the_record_after_a_no_break_space():
    view = view_pair(tiny_translator("rela-g"), "tiny", "The\u00a0dog sleeps .", "Der Hund .")
    assert view.attention["cross"].word.keys == ["The\u00a0dog", "sleeps", ".", END]
    assert dequantise(view.attention["cross"].word, LAYERS, HEADS).shape == (LAYERS, HEADS + 1, 4, 4)


def test_tokenised_text_is_shown_to_the_model_as_raw_text():
    """The words stay the tokens; the log-probability is that of the text without the tokeniser's spaces."""
    translator = tiny_translator("rela-g")
    view = view_pair(translator, "tiny", "The dog sleeps !", "Der Hund .", tokenised=True)
    assert view.attention["cross"].word.keys == ["The", "dog", "sleeps", "!", END]
    assert view.attention["cross"].word.queries == ["Der", "Hund", ".", END]
    raw = translator.score(["The dog sleeps!"], ["Der Hund."])[0].log_prob
    assert abs(view.log_prob - raw) <= HALF_A_DIGIT
    own = view_pair(translator, "tiny", "The dog sleeps !", tokenised=True)
    assert own.target == translator.translate(["The dog sleeps!"])[0]
    assert abs(own.log_prob - translator.score(["The dog sleeps!"], [own.target])[0].log_prob) <= HALF_A_DIGIT


def test_an_empty_target_has_a_view():
    view = view_pair(tiny_translator("rela-g"), "tiny", "The dog .", "")
    assert view.attention["shifted"].word.queries == []
    json.dumps(view.to_dict(), allow_nan=False)


def test_without_a_target_the_model_translates():
    translator = tiny_translator("rela-g")
    view = view_pair(translator, "tiny", PAIR[0])
    assert not view.forced
    assert view.target == translator.translate([PAIR[0]])[0]
    assert view.attention["cross"].word.queries == [*view.target.split(), END]


def test_unknown_characters_are_shown_as_themselves():
    view = view_pair(tiny_translator("rela-g"), "tiny", "The 🎉 سلام .", "Die 漢字 .")
    assert view.unknown == {"source": ["🎉", "سلام"], "target": ["漢字"]}
    assert view_pair(tiny_translator("rela-g"), "tiny", *PAIR).unknown == {"source": [], "target": []}
    assert view.attention["cross"].word.keys == ["The", "🎉", "سلام", ".", END]
    assert view.attention["cross"].word.queries == ["Die", "漢字", ".", END]
    assert "🎉" in "".join(view.attention["encoder"].subword.keys)


def test_a_typed_end_of_sentence_is_no_sink():
    """At word level the typed one is spelled like the real one; only the real one counts."""
    translator = tiny_translator("softmax")
    view = view_pair(translator, "tiny", "The </s> .", "Der .")
    (records,) = capture(translator, [("The </s> .", "Der .")])
    cross = view.attention["cross"]
    assert cross.word.keys == ["The", "</s>", ".", "</s>"]
    real = merge_record(records["cross"]).weights[..., -1].double().mean(-1)  # rows of softmax sum to one
    assert np.abs(np.array(cross.word.sink)[:, :HEADS] - real.numpy()).max() <= 1.01e-4


def test_gold_comes_with_the_error_rate_of_every_head():
    translator = tiny_translator("rela-g")
    gold = GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)}))
    view = view_pair(translator, "tiny", *PAIR, lambda source, target: gold if (source, target) == PAIR else None)
    (records,) = capture(translator, [PAIR], ("cross",))
    assert view.gold.sure == [[0, 0], [1, 1]]
    assert view.gold.possible == [[0, 0], [1, 1], [2, 1]]
    for shifted, table in ((False, view.gold.aer), (True, view.gold.aer_shifted)):
        for layer in range(LAYERS):
            for head in range(HEADS):
                exact = alignment_error_rate([head_links(records["cross"], layer, head, shifted)], [gold]).aer
                assert abs(table[layer][head] - exact) <= HALF_A_DIGIT
            exact = alignment_error_rate([layer_links(records["cross"], layer, shifted)], [gold]).aer
            assert abs(table[layer][HEADS] - exact) <= HALF_A_DIGIT


def test_no_gold_where_nobody_linked(both):
    assert both[0].gold is None
