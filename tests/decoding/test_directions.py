"""Two models that judge the same pairs go opposite ways, and pairs are written as a model reads them."""

from pathlib import Path

import pytest

import rela
from rela.decoding.directions import check_opposite, check_order
from tests.tiny_models import BACK, tiny_folder, tiny_translator


def test_the_second_model_goes_the_other_way(tmp_path):
    there, back = tiny_translator(), tiny_translator(seed=2, languages=BACK)
    check_opposite(there, back)
    check_opposite(there, None)
    for other in (
        tiny_translator(seed=2),
        tiny_translator(languages=("en", "en")),
        tiny_translator(languages=("fr", "en")),
    ):
        with pytest.raises(ValueError, match="wanted de to en"):
            check_opposite(there, other)


def test_a_model_is_not_its_own_reverse(tmp_path):
    copying = tiny_translator(languages=("en", "en"))
    with pytest.raises(ValueError, match="is given twice"):
        check_opposite(copying, copying)
    check_opposite(copying, tiny_translator(seed=2, languages=("en", "en")))
    folder = tmp_path / "model"
    one, other = (tiny_folder(folder, languages=("en", "en")) for _ in range(2))
    with pytest.raises(ValueError, match=f"{folder} is given twice"):
        check_opposite(one, other)


PAIRS = [
    ("The dog is sleeping in the garden.", "Der Hund schläft im Garten."),
    ("We have to talk about the budget.", "Wir müssen über den Haushalt sprechen."),
    ("Tom", "Tom"),
    ("", ""),
]


@pytest.mark.parametrize("name", ["en-de", "de-en"])
def test_pairs_are_written_as_the_model_reads_them(name):
    translator = rela.load(Path(__file__).parents[2] / "models" / name, device="cpu")
    right = PAIRS if name == "en-de" else [pair[::-1] for pair in PAIRS]
    check_order(translator, right)
    with pytest.raises(ValueError, match=f"wanted the text in {name[:2]} first, then that in {name[3:]}"):
        check_order(translator, [pair[::-1] for pair in right])
    check_order(translator, PAIRS[2:])  # the same both ways
    check_order(translator, [("word " * 2000, "Wort"), ("", "")])  # none that the model can read


def test_a_model_that_knows_nothing_refuses_nothing():
    translator = tiny_translator()
    for pairs in (PAIRS, [pair[::-1] for pair in PAIRS]):
        check_order(translator, pairs)
