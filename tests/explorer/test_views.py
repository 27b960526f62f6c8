"""Views of one or several models."""

import pytest

from rela.alignment.choose import AlignmentChoice, choose, save_choice
from rela.explorer.examples import Example, toy_examples
from rela.explorer.views import CHOICE_EXAMPLES, Views
from tests.explorer.conftest import two_directions
from tests.tiny_models import HEADS, tiny_folder, tiny_translator, toy_pairs

pytest.importorskip("fastapi")


def test_there_must_be_a_model():
    with pytest.raises(ValueError, match="at least one"):
        Views({})


def test_each_model_opens_at_its_own_best_head():
    """Without a remembered choice the gold links of the examples decide, for each model by itself."""
    examples = toy_examples()
    models = {"rela": tiny_translator("rela-g"), "soft": tiny_translator("softmax")}
    pairs = [(example.source, example.target) for example in examples[:CHOICE_EXAMPLES]]
    for described, translator in zip(Views(models, examples).models, models.values(), strict=True):
        best = choose(translator, pairs, [example.gold for example in examples[:CHOICE_EXAMPLES]])
        head = HEADS if best.heads is None else best.heads[0]
        assert described["choice"] == {"layer": best.layer, "head": head, "shifted": best.shifted}


def test_without_gold_links_agreement_chooses_the_head():
    views = Views({"rela": tiny_translator("rela-g")}, [Example(*pair) for pair in toy_pairs(4)])
    assert views.models[0]["choice"]["head"] in range(HEADS)
    assert Views({"rela": tiny_translator("rela-g")}).models[0]["choice"] is None


def test_a_remembered_choice_comes_first(tmp_path):
    translator = tiny_folder(tmp_path / "model")
    save_choice(translator.folder, AlignmentChoice(1, None, True))
    views = Views({"rela": translator}, toy_examples())
    assert views.models[0]["choice"] == {"layer": 1, "head": HEADS, "shifted": True}


def test_an_example_that_is_too_long_decides_nothing():
    views = Views({"rela": tiny_translator("rela-g")}, [Example("dog " * 200, "Hund"), *toy_examples()])
    assert views.models[0]["choice"] is not None


def test_a_model_of_the_other_direction_reads_the_pairs_turned_round():
    """Its best head is chosen on them, and their gold links are known."""
    views = two_directions()
    back = views.translators["de-en"]
    assert [model["languages"] for model in views.models] == [["en", "de"], ["de", "en"]]
    example = toy_examples()[1]
    known = views.find_gold(example.target, example.source)
    assert known is not None
    assert known.sure == frozenset((t, s) for s, t in views.find_gold(example.source, example.target).sure)
    assert views.read_by(back, ("en", "de"))[1].source == example.target
