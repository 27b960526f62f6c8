"""Which heads of cross attention word links are read from, chosen on gold links and remembered in the model folder.

`rela.alignment.agreement` makes the same choice without gold links.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import tee
from pathlib import Path

from torch import Tensor

from rela.alignment.punctuation import of_one_sort, same_sort
from rela.analysis.capture import capture
from rela.analysis.links import AlignmentTable, matrix_links, word_weights
from rela.analysis.record import AttentionRecord
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks, Link
from rela.files import read_json, write_text
from rela.model.folder import ModelFolderError

CHOICE = "alignment.json"


@dataclass(frozen=True)
class AlignmentChoice:
    """Where word links are read: some heads of one decoder layer, normal or shifted."""

    layer: int
    heads: tuple[int, ...] | None
    """None is the paper's layer attention, the mean of all heads."""
    shifted: bool
    aer: float | None = None
    """What it scored on the dev set, if it was chosen on one."""
    agreement: float | None = None
    """What it scored without gold links, if it was chosen so; see `chosen_by`."""
    chosen_by: str = "hand"
    """"gold" links of a dev set, agreement of "two directions" or of "one model" with itself, by "hand"."""

    def __post_init__(self) -> None:
        if self.heads is not None and (not self.heads or len(set(self.heads)) != len(self.heads)):
            raise ValueError(f"heads are {list(self.heads)}; wanted at least one, and none of them twice")

    def combine(self, weights: Tensor) -> Tensor:
        """[T, S], the chosen heads of the layer's weights [H, T, S] as one matrix.

        Each head's row is divided by its sum before the mean is taken, so that every head that looks somewhere
        counts the same; a null row stays null.
        """
        if self.heads is None:
            return weights.mean(dim=0)
        return mean_of_shares(weights[list(self.heads)])

    def word_matrix(self, record: AttentionRecord) -> Tensor:
        """[T', S'], the weight of each source word for each target word."""
        layer = replace(record, weights=record.weights[self.layer : self.layer + 1])
        return self.combine(word_weights(layer, self.shifted)[0])

    def links(self, record: AttentionRecord) -> frozenset[Link]:
        """The links of one sentence pair: each target word to the source word it weighs most."""
        return matrix_links(self.word_matrix(record))

    def __str__(self) -> str:
        if self.heads is None:
            where = "mean of all heads"
        else:
            where = f"head{'s' * (len(self.heads) > 1)} {', '.join(str(head + 1) for head in self.heads)}"
        text = f"layer {self.layer + 1}, {where}, {'shifted' if self.shifted else 'normal'} attention"
        if self.aer is not None:
            text += f", AER {100 * self.aer:.2f} on the dev set"
        if self.agreement is not None:
            text += f", agreement {100 * self.agreement:.1f} ({self.chosen_by}, no gold links)"
        return text


def mean_of_shares(weights: Tensor) -> Tensor:
    """[…, T, S], the mean over heads of weights [H, …, T, S], rows divided by their sums; a null row stays null."""
    total = weights.sum(dim=-1, keepdim=True)
    return (weights / total.where(total > 0, 1.0)).mean(dim=0)


def default_choice(layers: int) -> AlignmentChoice:
    """Where nothing was chosen: shifted layer attention of the middle layer, the paper's best on its data.

    It may be far from the best head of a model: choose one on any parallel text (`rela.alignment.agreement`).
    """
    return AlignmentChoice(layer=(layers - 1) // 2, heads=None, shifted=True)


def check_choice(choice: AlignmentChoice, translator: Translator) -> None:
    """Refuse a layer or head that the model does not have; counted from 1 in the message, as on the command line."""
    shape = translator.config.model
    if not 0 <= choice.layer < shape.decoder_layers:
        raise ModelFolderError(f"layer is {choice.layer + 1}; the model has layers 1 to {shape.decoder_layers}")
    for head in choice.heads or ():
        if not 0 <= head < shape.heads:
            raise ModelFolderError(f"head is {head + 1}; the model has heads 1 to {shape.heads}")


class Aligner:
    """Word links of sentence pairs, read from a model's cross attention."""

    def __init__(self, translator: Translator, choice: AlignmentChoice | None = None, tokenised: bool = False) -> None:
        self.translator, self.tokenised = translator, tokenised
        remembered = load_choice(translator.folder) if translator.folder else None
        self.chosen = choice is not None or remembered is not None
        """Whether the heads were chosen; if not, the default is read, which may be far from the best."""
        self.choice = choice or remembered or default_choice(translator.config.model.decoder_layers)
        check_choice(self.choice, translator)

    def align(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[frozenset[Link]]:
        """The links (source word, target word) of each pair, in order; none is of a word and a punctuation mark."""
        pairs, texts = tee(zip(sources, targets, strict=True))
        yield from of_one_sort(map(matrix_links, self.matrices(pairs)), texts)

    def matrices(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Tensor]:
        """[T', S'], the word weights of each pair, in order."""
        for pair in capture(self.translator, pairs, ("cross",), tokenised=self.tokenised):
            yield self.choice.word_matrix(pair["cross"])


def choose(
    translator: Translator, pairs: Iterable[tuple[str, str]], gold: Iterable[GoldLinks], tokenised: bool = False
) -> AlignmentChoice:
    """The head or layer, normal or shifted, with the lowest AER on a dev set with gold links."""
    pairs, gold = list(pairs), list(gold)
    if len(pairs) != len(gold) or not gold:
        raise ValueError(f"gold links of {len(gold)} sentences for {len(pairs)} pairs; wanted equally many, and some")
    tables = {shifted: AlignmentTable(shifted, same_sort) for shifted in (False, True)}
    for records, links in zip(capture(translator, pairs, ("cross",), tokenised=tokenised), gold, strict=True):
        for table in tables.values():
            table.add(records["cross"], links)
    options = []
    for shifted, table in tables.items():
        scores = table.scores()
        for layer, row in enumerate(scores.heads):
            found = [(None, scores.layers[layer]), *(((head,), score) for head, score in enumerate(row))]
            options += [AlignmentChoice(layer, heads, shifted, score.aer, None, "gold") for heads, score in found]
    return min(options, key=lambda option: option.aer if option.aer is not None else 1.0)


def save_choice(folder: Path, choice: AlignmentChoice) -> None:
    """Remember a choice in the model folder."""
    write_text(folder / CHOICE, json.dumps(asdict(choice)))


def load_choice(folder: Path) -> AlignmentChoice | None:
    """The choice remembered in a model folder, or None."""
    path = folder / CHOICE
    if not os.path.lexists(path):
        return None
    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise ValueError("wanted an object with layer, heads and shifted")
        if "head" in values:  # as it was written while a choice was one head
            head = values.pop("head")
            values["heads"] = None if head is None else [head]
        check_names(values)
        heads = values.pop("heads")
        choice = AlignmentChoice(heads=None if heads is None else tuple(heads), **values)
        check_types(choice)
    except (ValueError, TypeError) as error:
        raise ModelFolderError(f"{path} is damaged: {error}") from None
    return choice


def check_names(values: dict[str, object]) -> None:
    """Refuse a file that lacks a value of a choice, or has one that a choice does not have."""
    if missing := [name for name in ("layer", "heads", "shifted") if name not in values]:
        raise ValueError(f"it has no {' and no '.join(missing)}; wanted layer, heads and shifted")
    if unknown := sorted(values.keys() - {field.name for field in fields(AlignmentChoice)}):
        raise ValueError(f"it has {', '.join(unknown)}, which a choice of heads does not have")


def check_types(choice: AlignmentChoice) -> None:
    """Refuse values of a file that are of other types than a choice has; a bool is no number."""
    numbers = [choice.layer, *(choice.heads or ())]
    rates = [rate for rate in (choice.aer, choice.agreement) if rate is not None]
    for name, fits in (
        ("layer and heads", all(type(number) is int for number in numbers)),
        ("shifted", isinstance(choice.shifted, bool)),
        ("aer and agreement", all(type(rate) in (int, float) for rate in rates)),
        ("chosen_by", isinstance(choice.chosen_by, str)),
    ):
        if not fits:
            raise ValueError(f"{name} are of another type than a choice has")
