"""Word alignment from cross attention: which head to read, chosen on a dev set and remembered in the model folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rela.analysis.capture import capture
from rela.analysis.links import AlignmentTable, head_links, layer_links
from rela.analysis.record import AttentionRecord
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks, Link
from rela.files import write_text
from rela.model.folder import ModelFolderError

CHOICE = "alignment.json"


@dataclass(frozen=True)
class AlignmentChoice:
    """Where word links are read: one head of a decoder layer, or (head None) the layer's mean, normal or shifted."""

    layer: int
    head: int | None
    shifted: bool
    aer: float | None = None
    """What it scored on the dev set, if it was chosen on one."""

    def links(self, record: AttentionRecord) -> frozenset[Link]:
        if self.head is None:
            return layer_links(record, self.layer, self.shifted)
        return head_links(record, self.layer, self.head, self.shifted)


def default_choice(layers: int) -> AlignmentChoice:
    """Without a dev set: shifted layer attention of the middle layer, where the paper finds the best alignments."""
    return AlignmentChoice(layer=(layers - 1) // 2, head=None, shifted=True)


class Aligner:
    """Word links of sentence pairs, read from a model's cross attention."""

    def __init__(self, translator: Translator, choice: AlignmentChoice | None = None, tokenised: bool = False) -> None:
        self.translator, self.tokenised = translator, tokenised
        remembered = load_choice(translator.folder) if translator.folder else None
        shape = translator.config.model
        self.choice = choice or remembered or default_choice(shape.decoder_layers)
        layer, head = self.choice.layer, self.choice.head
        if not 0 <= layer < shape.decoder_layers or not (head is None or 0 <= head < shape.heads):
            raise ModelFolderError(
                f"alignments are read from layer {layer}, head {head}, and the model has "
                f"{shape.decoder_layers} layers of {shape.heads} heads, counting from 0"
            )

    def align(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[frozenset[Link]]:
        """The links (source word, target word) of each pair, in order."""
        pairs = zip(sources, targets, strict=True)
        for pair in capture(self.translator, pairs, ("cross",), tokenised=self.tokenised):
            yield self.choice.links(pair["cross"])


def choose(
    translator: Translator, pairs: Iterable[tuple[str, str]], gold: Iterable[GoldLinks], tokenised: bool = False
) -> AlignmentChoice:
    """The head or layer, normal or shifted, with the lowest AER on a dev set with gold links."""
    pairs, gold = list(pairs), list(gold)
    if len(pairs) != len(gold) or not gold:
        raise ValueError(f"gold links of {len(gold)} sentences for {len(pairs)} pairs; wanted equally many, and some")
    tables = {shifted: AlignmentTable(shifted) for shifted in (False, True)}
    for records, links in zip(capture(translator, pairs, ("cross",), tokenised=tokenised), gold, strict=True):
        for table in tables.values():
            table.add(records["cross"], links)
    options = []
    for shifted, table in tables.items():
        scores = table.scores()
        for layer, row in enumerate(scores.heads):
            options.append(AlignmentChoice(layer, None, shifted, scores.layers[layer].aer))
            options += [AlignmentChoice(layer, head, shifted, score.aer) for head, score in enumerate(row)]
    return min(options, key=lambda option: option.aer if option.aer is not None else 1.0)


def save_choice(folder: Path, choice: AlignmentChoice) -> None:
    """Remember a choice in the model folder."""
    write_text(folder / CHOICE, json.dumps(asdict(choice)))


def load_choice(folder: Path) -> AlignmentChoice | None:
    """The choice remembered in a model folder, or None."""
    path = folder / CHOICE
    if not path.is_file():
        return None
    try:
        return AlignmentChoice(**json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, TypeError) as error:
        raise ModelFolderError(f"{path} is damaged: {error}") from None
