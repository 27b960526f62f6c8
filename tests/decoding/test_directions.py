"""Two models that judge the same pairs go opposite ways."""

import pytest

from rela.decoding.directions import check_opposite
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
