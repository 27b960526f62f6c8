"""A model's languages are those that its name or its config says."""

import pytest

from rela.server.languages import name_of, pair_of
from rela.server.models import ServedModels, languages_of
from rela.server.settings import ServerSettings
from rela.web.refused import Refused


def test_a_name_that_is_a_pair_says_the_languages():
    assert pair_of("en-de") == ("en", "de")
    assert pair_of("deu-gsw") == ("deu", "gsw")
    for name in ("demo", "en_de", "en-de-2", "EN-DE", "e-d", "rela-g"):
        assert pair_of(name) is None


def test_languages_have_names():
    assert (name_of("de"), name_of("qqq")) == ("German", "qqq")


def test_a_config_says_the_languages_of_a_model_with_another_name(translators):
    translator = translators["en-de"]
    assert languages_of("demo", translator) == ("en", "de")
    assert languages_of("fr-nl", translator) == ("fr", "nl")


def test_the_first_of_several_models_of_a_pair_serves_it(translators):
    one, two = translators.values()
    models = ServedModels({"a": one, "b": two}, ServerSettings())
    assert models.find(None, "en", "de").name == "a"
    assert models.find("b", "en", None).name == "b"
    with pytest.raises(Refused, match="there is a \\(en to de\\), b"):
        models.find("c", None, None)
