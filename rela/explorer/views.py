"""The loaded models and their examples: answers what the page asks, one question at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from rela.alignment.agreement import choose_alone
from rela.alignment.choose import AlignmentChoice, check_choice, choose, load_choice
from rela.analysis.ablation import Head, check_head
from rela.decoding.translate import PairTooLong, Translator
from rela.evaluation.alignment import GoldLinks
from rela.explorer.examples import GUIDE_WORD, Example, guide_example, turned
from rela.explorer.payload import SCHEMA, View, view_pair
from rela.web.refused import Refused

MAX_CHARACTERS = 4000
"""Of a source or a target."""
MAX_SUBWORDS = 300
"""Of a source or a target; weights grow with the square of it."""
MAX_EXAMPLES = 200
"""That the page lists; the gold links of the others are known all the same."""
CHOICE_EXAMPLES = 32
"""On which the head to begin with is chosen, where the model folder remembers none."""


class Views:
    """Models by name, and views of sentence pairs through them."""

    def __init__(
        self, translators: dict[str, Translator], examples: Sequence[Example] = (), tokenised: bool = False
    ) -> None:
        if not translators:
            raise ValueError("there is no model to explore; wanted at least one")
        self.translators = translators
        self.examples = list(examples)
        self.tokenised = tokenised
        # also known to models of the other direction, which are shown the pairs turned round
        self.gold = {example.key: example.gold for example in [*map(turned, self.examples), *self.examples]}
        languages = next(iter(translators.values())).languages
        # Made now, so that a damaged model folder is an error before anyone visits.
        self.models = [
            describe(name, translator, best_heads(translator, self.read_by(translator, languages), tokenised))
            for name, translator in translators.items()
        ]
        self._one_at_a_time = threading.Lock()

    def read_by(self, translator: Translator, languages: tuple[str, str]) -> list[Example]:
        """The examples, which are in the first model's languages, as this model reads them; none in others."""
        if translator.languages == languages:
            return self.examples
        return list(map(turned, self.examples)) if translator.languages == languages[::-1] else []

    def start(self) -> dict[str, Any]:
        """What the page needs before anything is asked: models, examples, limits."""
        return {
            "schema": SCHEMA,
            "models": self.models,
            "examples": [{"source": e.source, "target": e.target} for e in self.examples[:MAX_EXAMPLES]],
            "guide": self.guide(),
            "limits": {"characters": MAX_CHARACTERS, "subwords": MAX_SUBWORDS},
        }

    def guide(self) -> dict[str, Any] | None:
        """The pair that the page explains first, and its word to look at, where it is among the examples."""
        guide = guide_example()
        if not any(example.key == guide.key for example in self.examples):
            return None
        return {"source": guide.source, "target": guide.target, "word": GUIDE_WORD}

    def view(self, model: str, source: str, target: str | None = None, off: Sequence[Any] = ()) -> View:
        """One pair through one model; without a target (or with an empty one) the model translates.

        `off` are heads to switch off, each [attention type, layer, head], counted from 0.
        """
        if model not in self.translators:
            raise Refused(f"there is no such model; wanted {' or '.join(self.translators)}", 404)
        translator = self.translators[model]
        target = target if target and target.strip() else None
        for name, text in (("source", source), ("target", target)):
            check_text(name, text, translator)
        heads = list(dict.fromkeys(read_head(head, translator) for head in off))
        with self._one_at_a_time:
            try:
                return view_pair(translator, model, source, target, self.find_gold, heads, self.tokenised)
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
    vocabulary = translator.subwords.source if name == "source" else translator.subwords
    subwords = len(vocabulary.encode(text))
    limit = min(MAX_SUBWORDS, translator.config.model.max_length - 1)
    if subwords > limit:
        raise Refused(f"the {name} has {subwords} subwords; the explorer takes at most {limit} with this model", 413)
    if not subwords:
        raise Refused(f"the {name} is empty; wanted a sentence")


def read_head(head: Any, translator: Translator) -> Head:
    """A head as a request names it."""
    if not isinstance(head, list) or [type(part) for part in head] != [str, int, int]:
        raise Refused("a head in off is no list of attention type, layer and head, such as ['cross', 0, 1]")
    check_head(translator, *head)
    return head[0], head[1], head[2]


def best_heads(translator: Translator, examples: Sequence[Example], tokenised: bool) -> AlignmentChoice | None:
    """The heads that align best: those the model folder remembers, or else those that do so on the examples.

    The first examples decide, by their gold links if they have them and by agreement if not.
    """
    choice = load_choice(translator.folder) if translator.folder else None
    if choice is not None:
        check_choice(choice, translator)
        return choice
    usable = [example for example in examples[:CHOICE_EXAMPLES] if is_usable(example, translator)]
    pairs, gold = [(example.source, example.target) for example in usable], [example.gold for example in usable]
    if not pairs:
        return None
    known = [links for links in gold if links is not None]
    if len(known) == len(gold):
        return choose(translator, pairs, known, tokenised)
    return choose_alone(translator, pairs, tokenised)


def is_usable(example: Example, translator: Translator) -> bool:
    """Whether an example is neither empty nor too long for the model."""
    limit = translator.config.model.max_length - 1
    sides = (translator.subwords.source, example.source), (translator.subwords, example.target)
    return all(0 < len(subwords.encode(text)) <= limit for subwords, text in sides)


def describe(name: str, translator: Translator, choice: AlignmentChoice | None = None) -> dict[str, Any]:
    """A model in the page's list; `choice` is where it opens, the head after the last being the layer attention."""
    shape = translator.config.model
    head = shape.heads if choice is None or choice.heads is None else choice.heads[0]
    return {
        "name": name,
        "languages": list(translator.languages),
        "kinds": shape.attention_kinds,
        "layers": {
            "encoder": shape.encoder_layers,
            "decoder": shape.decoder_layers,
            "cross": shape.decoder_layers,
            "shifted": shape.decoder_layers,
        },
        "heads": shape.heads,
        "choice": None if choice is None else {"layer": choice.layer, "head": head, "shifted": choice.shifted},
    }
