"""A text's language is found among those of the models."""

import sys

import pytest

from rela.server import detection
from rela.server.detection import detect_source, rank_languages

TEXTS = {
    "en": "Where is the station , and how long do we have to wait ?",
    "de": "Wo ist der Bahnhof , und wie lange müssen wir warten ?",
    "fr": "Où est la gare , et combien de temps faut-il attendre ?",
    "no": "Hvor er stasjonen , og hvor lenge må vi vente ?",
}


@pytest.fixture
def detector():
    pytest.importorskip("py3langid")


@pytest.mark.usefixtures("detector")
@pytest.mark.parametrize("language", TEXTS)
def test_the_right_language_comes_first(language):
    ranked = rank_languages(TEXTS[language], list(TEXTS))
    assert ranked[0].language == language
    assert sum(found.probability for found in ranked) == pytest.approx(1)
    others = [code for code in TEXTS if code != language]
    assert detect_source(TEXTS[language], [language, others[0]], others[1]).language == language
    assert detect_source(TEXTS[language], others[:2], language).language == language


@pytest.mark.usefixtures("detector")
def test_a_doubtful_text_is_not_taken_for_the_target():
    """Nothing speaks for either language: it is translated rather than handed back."""
    for text in ("", "OK", "123"):
        assert detect_source(text, ["en"], "de").language == "en"
        assert detect_source(text, ["de"], "en").language == "de"


@pytest.mark.usefixtures("detector")
def test_other_codes_and_unknown_ones():
    assert rank_languages(TEXTS["no"], ["en", "nb"])[0].language == "nb"
    with pytest.raises(ValueError, match="does not know src; wanted the code"):
        detect_source(TEXTS["en"], ["src", "en"], "de")
    assert detect_source(TEXTS["en"], ["src"], "tgt").language == "src"


def test_several_sources_need_the_detector(monkeypatch):
    detection.load_identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(ImportError, match=r"needs py3langid: pip install 'rela-attention\[serve\]'"):
        detect_source("Hallo", ["en", "fr"], "de")
    assert detect_source("Hallo", ["en"], "de") == detection.Detected("en", 1.0)
