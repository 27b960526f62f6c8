"""A head that is off adds nothing, in every engine, and the model it was taken from stays as it is."""

import pytest
import torch

from rela.analysis.ablation import attentions_of, check_head, without_heads
from rela.analysis.record import TYPES
from rela.attention.reference import attend
from rela.decoding.engines.int8_linear import why_not_int8
from rela.decoding.translate import Translator
from tests.tiny_models import HEADS, LAYERS, tiny_translator, toy_pairs

PAIRS = toy_pairs(6, seed=3)
SOURCES, TARGETS = map(list, zip(*PAIRS, strict=True))
ALL = [(type, layer, head) for type in TYPES for layer in range(LAYERS) for head in range(HEADS)]


def log_probs(translator: Translator) -> torch.Tensor:
    return torch.tensor([scored.log_prob for scored in translator.score(SOURCES, TARGETS)])


@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
def test_the_context_of_a_head_that_is_off_is_zero(kind):
    """The attention's output is that of the other heads' context, with zeros in this head's place."""
    translator = tiny_translator(kind)
    changed = attentions_of(without_heads(translator, [("cross", 1, 0)]).model)["cross"][1]
    attention = attentions_of(translator.model)["cross"][1]
    query, key = (torch.randn(2, length, attention.embed_dim) for length in (5, 7))
    q, k, v = attention.project(query, key, key, None)
    context, _ = attend(
        q, k, v, attention.kind.weights, attention.head_dim**-0.5, None, None, attention.threshold, 0.0, False
    )
    context[:, 0] = 0.0
    wanted = attention.finish(context.transpose(1, 2).flatten(-2), q.dtype)
    found, _ = changed(query, key, key)
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", ALL)
def test_every_head_that_is_off_changes_the_log_probabilities(head):
    translator = tiny_translator("rela-g")
    before = log_probs(translator)
    assert not torch.equal(log_probs(without_heads(translator, [head])), before)
    assert torch.equal(log_probs(translator), before)


def test_without_cross_attention_the_source_does_not_matter():
    off = without_heads(tiny_translator("softmax"), [head for head in ALL if head[0] == "cross"])
    one, other = off.score(["The dog sleeps ."] * 2, ["Der Hund .", "Der Hund ."])
    (elsewhere,) = off.score(["Two old women are singing ."], ["Der Hund ."])
    assert one == other
    assert elsewhere.log_prob == pytest.approx(one.log_prob, abs=1e-4)


@pytest.mark.parametrize("options", [{"engine": "reference"}, {"beam": 1}, {"precision": "int8"}])
def test_no_engine_sees_the_source_without_cross_attention(options):
    """Sources of equally many subwords, so that translations may be equally long; with all heads on they differ."""
    if "precision" in options and (reason := why_not_int8(torch.device("cpu"))):
        pytest.skip(reason)
    translator = tiny_translator("rela-g")
    sources = ["The dog sleeps .", "Peter reads books !"]
    ids = [translator.subwords.encode(source) for source in sources]
    sources[1] = translator.subwords.decode([*ids[1], *ids[1]][: len(ids[0])])
    off = without_heads(translator, [head for head in ALL if head[0] == "cross"])
    first, second = off.translate(sources, **options)
    assert first == second
    first, second = translator.translate(sources, **options)
    assert first != second


def test_tensors_of_other_heads_are_shared():
    translator = tiny_translator("rela-g")
    off = without_heads(translator, [("encoder", 0, 0)])
    own = {name for name, tensor in off.model.named_parameters() if tensor is not translator.model.get_parameter(name)}
    assert own == {"encoder.0.attention.in_proj_weight", "encoder.0.attention.in_proj_bias"}


@pytest.mark.parametrize("head", [("cross", LAYERS, 0), ("cross", 0, HEADS), ("cross", -1, 0), ("sideways", 0, 0)])
def test_heads_that_are_not_there_are_refused(head):
    with pytest.raises(ValueError, match=r"there is no head|wanted one of"):
        check_head(tiny_translator("rela-g"), *head)


def test_an_ensemble_is_refused():
    together = Translator.ensemble([tiny_translator("rela-g"), tiny_translator("softmax")])
    with pytest.raises(ValueError, match="ensemble of 2"):
        without_heads(together, [("cross", 0, 0)])
