"""The loaded models and their examples: answers what the page asks, one question at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from rela.alignment.choose import load_choice
from rela.decoding.translate import PairTooLong, Translator
from rela.evaluation.alignment import GoldLinks
from rela.explorer.examples import Example
from rela.explorer.payload import SCHEMA, View, view_pair
from rela.web.refused import Refused

MAX_CHARACTERS = 4000
"""Of a source or a target."""
MAX_SUBWORDS = 300
"""Of a source or a target; weights grow with the square of it."""
MAX_EXAMPLES = 200
"""That the page lists; the gold links of the others are known all the same."""


class Views:
    """Models by name, and views of sentence pairs through them."""

    def __init__(self, translators: dict[str, Translator], examples: Sequence[Example] = ()) -> None:
        if not translators:
            raise ValueError("there is no model to explore; wanted at least one")
        self.translators = translators
        self.examples = list(examples)
        self.gold = {example.key: example.gold for example in self.examples}
        # Made now, so that a damaged model folder is an error before anyone visits.
        self.models = [describe(name, translator) for name, translator in translators.items()]
        self._one_at_a_time = threading.Lock()

    def start(self) -> dict[str, Any]:
        """What the page needs before anything is asked: models, examples, limits."""
        return {
            "schema": SCHEMA,
            "models": self.models,
            "examples": [{"source": e.source, "target": e.target} for e in self.examples[:MAX_EXAMPLES]],
            "limits": {"characters": MAX_CHARACTERS, "subwords": MAX_SUBWORDS},
        }

    def view(self, model: str, source: str, target: str | None = None) -> View:
        """One pair through one model; without a target (or with an empty one) the model translates."""
        if model not in self.translators:
            raise Refused(f"there is no such model; wanted {' or '.join(self.translators)}", 404)
        translator = self.translators[model]
        target = target if target and target.strip() else None
        for name, text in (("source", source), ("target", target)):
            check_text(name, text, translator)
        with self._one_at_a_time:
            try:
                return view_pair(translator, model, source, target, self.find_gold)
            except PairTooLong as error:
                raise Refused(str(error), 413) from None

    def find_gold(self, source: str, target: str) -> GoldLinks | None:
        """The gold links of a pair that is among the examples, however its words are spaced."""
        return self.gold.get(Example(source, target).key)


def check_text(name: str, text: str | None, translator: Translator) -> None:
    """Refuse what the model or the page could not take."""
    if text is None:
        return
    if len(text) > MAX_CHARACTERS:
        raise Refused(f"the {name} has {len(text):,} characters; the explorer takes at most {MAX_CHARACTERS:,}", 413)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused(f"the {name} holds half a character (a lone surrogate); wanted valid Unicode") from None
    subwords = len(translator.subwords.encode(text))
    limit = min(MAX_SUBWORDS, translator.config.model.max_length - 1)
    if subwords > limit:
        raise Refused(f"the {name} has {subwords} subwords; the explorer takes at most {limit} with this model", 413)
    if not subwords:
        raise Refused(f"the {name} is empty; wanted a sentence")


def describe(name: str, translator: Translator) -> dict[str, Any]:
    """A model in the page's list; `choice` is the head that aligns best, where the model folder remembers one."""
    shape = translator.config.model
    choice = load_choice(translator.folder) if translator.folder else None
    return {
        "name": name,
        "kinds": shape.attention_kinds,
        "layers": {"encoder": shape.encoder_layers, "decoder": shape.decoder_layers, "cross": shape.decoder_layers},
        "heads": shape.heads,
        "choice": None if choice is None else {"layer": choice.layer, "head": (choice.heads or (None,))[0]},
    }
