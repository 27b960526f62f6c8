"""The head and layer that align best, and a choice that is remembered."""

import json

import pytest
import torch

from rela.alignment.choose import Aligner, AlignmentChoice, choose, default_choice, load_choice, save_choice
from rela.alignment.corpus import align_corpus
from rela.alignment.punctuation import same_sort
from rela.analysis.capture import capture
from rela.analysis.links import head_links, layer_links
from rela.evaluation.alignment import GoldLinks, alignment_error_rate
from rela.model.folder import ModelFolderError
from rela.toy import generate
from tests.tiny_models import HEADS, LAYERS, tiny_folder, tiny_translator

TOY = list(generate(6, seed=5))
PAIRS = [(pair.source, pair.target) for pair in TOY]
GOLD = [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in TOY]


@pytest.mark.parametrize("choice", [AlignmentChoice(1, (0,), True), AlignmentChoice(0, None, False), None])
def test_links_are_those_of_the_chosen_head(choice):
    aligner = Aligner(tiny_translator(), choice)
    chosen = choice or default_choice(LAYERS)
    captured = capture(tiny_translator(), PAIRS, ("cross",))
    for (source, target), links, records in zip(PAIRS, align_corpus(aligner, PAIRS), captured, strict=True):
        if chosen.heads is None:
            found = layer_links(records["cross"], chosen.layer, chosen.shifted)
        else:
            found = head_links(records["cross"], chosen.layer, chosen.heads[0], chosen.shifted)
        assert links == same_sort(found, source.split(), target.split())


def test_heads_have_the_same_say_whatever_the_size_of_their_weights():
    weights = torch.tensor([[[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 1.0, 3.0]]])  # [H, T, S]
    both = AlignmentChoice(0, (0, 1), False)
    assert both.combine(weights).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.125, 0.375]]
    assert both.combine(weights * torch.tensor([100.0, 1.0])[:, None, None]).equal(both.combine(weights))
    assert AlignmentChoice(0, None, False).combine(weights).equal(weights.mean(0))
    assert AlignmentChoice(0, (0,), False).combine(weights)[1].tolist() == [0.0, 0.0, 0.0], "a null row stays null"


def test_the_choice_is_the_best_of_all():
    found = choose(tiny_translator(), PAIRS, GOLD)
    options = [
        AlignmentChoice(layer, head, shifted)
        for layer in range(LAYERS)
        for head in (None, *((one,) for one in range(HEADS)))
        for shifted in (False, True)
    ]
    rates = {
        option: alignment_error_rate(align_corpus(Aligner(tiny_translator(), option), PAIRS), GOLD).aer
        for option in options
    }
    assert found.aer == min(rates.values())
    assert rates[AlignmentChoice(found.layer, found.heads, found.shifted)] == found.aer


def test_the_choice_is_remembered_in_the_folder(tmp_path):
    model = tiny_folder(tmp_path / "model")
    assert Aligner(model).choice == default_choice(LAYERS)
    assert not Aligner(model).chosen
    for choice in (AlignmentChoice(1, (1,), False, 0.25, None, "gold"), AlignmentChoice(0, (1, 0), True, None, 0.5)):
        save_choice(tmp_path / "model", choice)
        assert Aligner(model).choice == choice
        assert Aligner(model).chosen
    assert Aligner(model, AlignmentChoice(0, (0,), True)).choice == AlignmentChoice(0, (0,), True)
    old = {"layer": 1, "head": 0, "shifted": False, "aer": 0.25}  # as it was written while a choice was one head
    (tmp_path / "model" / "alignment.json").write_text(json.dumps(old))
    assert Aligner(model).choice == AlignmentChoice(1, (0,), False, 0.25)
    (tmp_path / "model" / "alignment.json").write_text(json.dumps({**old, "head": 7}))
    with pytest.raises(ModelFolderError, match="head is 8; the model has heads 1 to 2"):
        Aligner(model)
    for wrong in (
        [],
        7,
        {**old, "layer": "1"},
        {**old, "layer": True},
        {**old, "head": [0]},
        {**old, "head": 0.5},
        {**old, "shifted": "no"},
        {**old, "aer": "low"},
        {**old, "chosen_by": 3},
    ):
        (tmp_path / "model" / "alignment.json").write_text(json.dumps(wrong))
        message = "" if isinstance(wrong, dict) else "wanted an object"
        with pytest.raises(ModelFolderError, match=rf"alignment\.json is damaged: {message}"):
            Aligner(model)
    for wrong, message in (
        ({"layer": 1, "leyer": 2}, "it has no heads and no shifted; wanted layer, heads and shifted"),
        ({**old, "leyer": 2}, "it has leyer, which a choice of heads does not have"),
    ):
        (tmp_path / "model" / "alignment.json").write_text(json.dumps(wrong))
        with pytest.raises(ModelFolderError, match=f"damaged: {message}"):
            load_choice(tmp_path / "model")
