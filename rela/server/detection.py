"""The language of a text, as LibreTranslate's clients ask for it: /detect, and the source "auto".

The detector is py3langid, held to the languages of the models. It is loaded when it is first asked, which takes a
second or two, so these functions are called from threads of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

CERTAIN = 0.9
"""A text is taken to be in the target language already from this probability on."""
ALIASES = {"nb": "no"}
"""Codes that the detector writes otherwise."""
_loading = threading.Lock()


@dataclass(frozen=True)
class Detected:
    """A language and its probability among those it was chosen from."""

    language: str
    probability: float

    def as_libretranslate(self) -> dict[str, Any]:
        """LibreTranslate's answer, whose confidences are percentages."""
        return {"confidence": round(100 * self.probability, 1), "language": self.language}


def rank_languages(text: str, languages: Sequence[str]) -> list[Detected]:
    """The languages with the probability that `text` is in each of them and not in another of them, best first."""
    with _loading:
        identifier = load_identifier()
    known = {code: ALIASES.get(code, code) for code in dict.fromkeys(languages)}
    if strange := [code for code, name in known.items() if name not in identifier.labels]:
        raise ValueError(f"the detector does not know {', '.join(strange)}; wanted the code of the source, not auto")
    probabilities = dict(identifier.rank(text))
    total = sum(probabilities[name] for name in set(known.values()))
    ranked = [Detected(code, probabilities[name] / total) for code, name in known.items()]
    return sorted(ranked, key=lambda found: -found.probability)


def detect_source(text: str, sources: Sequence[str], target: str) -> Detected:
    """The language of a text that is to be translated to `target` from one of `sources`.

    It is the target language itself where the detector is certain of that: there is nothing to translate then. A single
    source needs no detector; several do.
    """
    try:
        ranked = rank_languages(text, [*sources, target])
    except (ImportError, ValueError):
        if len(sources) > 1:
            raise
        return Detected(sources[0], 1.0)
    best = ranked[0]
    if best.language == target and target not in sources and best.probability < CERTAIN:
        return ranked[1]
    return best


@cache
def load_identifier() -> Any:
    """py3langid's identifier, which is loaded once."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        message = "detecting a language needs py3langid: pip install 'rela-attention[serve]'"
        raise ImportError(message, name="py3langid") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
