"""The head and layer that align best, and a choice that is remembered."""

import json

import pytest

from rela.alignment.choose import Aligner, AlignmentChoice, choose, default_choice, load_choice, save_choice
from rela.alignment.corpus import align_corpus
from rela.analysis.capture import capture
from rela.analysis.links import head_links, layer_links
from rela.evaluation.alignment import GoldLinks, alignment_error_rate
from rela.model.folder import ModelFolderError
from rela.toy import generate
from tests.tiny_models import HEADS, LAYERS, tiny_folder, tiny_translator

TOY = list(generate(6, seed=5))
PAIRS = [(pair.source, pair.target) for pair in TOY]
GOLD = [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in TOY]


@pytest.mark.parametrize("choice", [AlignmentChoice(1, 0, True), AlignmentChoice(0, None, False), None])
def test_links_are_those_of_the_chosen_head(choice):
    aligner = Aligner(tiny_translator(), choice)
    chosen = choice or default_choice(LAYERS)
    for links, records in zip(align_corpus(aligner, PAIRS), capture(tiny_translator(), PAIRS, ("cross",)), strict=True):
        if chosen.head is None:
            assert links == layer_links(records["cross"], chosen.layer, chosen.shifted)
        else:
            assert links == head_links(records["cross"], chosen.layer, chosen.head, chosen.shifted)


def test_the_choice_is_the_best_of_all():
    found = choose(tiny_translator(), PAIRS, GOLD)
    options = [
        AlignmentChoice(layer, head, shifted)
        for layer in range(LAYERS)
        for head in (None, *range(HEADS))
        for shifted in (False, True)
    ]
    rates = {
        option: alignment_error_rate(align_corpus(Aligner(tiny_translator(), option), PAIRS), GOLD).aer
        for option in options
    }
    assert found.aer == min(rates.values())
    assert rates[AlignmentChoice(found.layer, found.head, found.shifted)] == found.aer


def test_the_choice_is_remembered_in_the_folder(tmp_path):
    model = tiny_folder(tmp_path / "model")
    assert Aligner(model).choice == default_choice(LAYERS)
    save_choice(tmp_path / "model", AlignmentChoice(1, 1, False, 0.25))
    assert Aligner(model).choice == AlignmentChoice(1, 1, False, 0.25)
    assert Aligner(model, AlignmentChoice(0, 0, True)).choice == AlignmentChoice(0, 0, True)
    (tmp_path / "model" / "alignment.json").write_text(json.dumps({"layer": 1, "leyer": 2}))
    with pytest.raises(ModelFolderError, match="damaged"):
        load_choice(tmp_path / "model")
