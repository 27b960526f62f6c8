"""The command that draws one picture of a report alone, from the same files in the same way."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rela.report.figures import Figure
from rela.report.pictures import Picture
from rela.report.results import ALIGNMENT, DETECTION, SHUFFLED

GOLD = ("gold", "gold_one_based", "gold_flipped")
GOLD_TEXT = ("gold_source", "gold_target", "gold_tokenised")


@dataclass(frozen=True)
class PlotCommand:
    """The arguments of `rela analyse` that `rela plot` takes too, as they were typed."""

    models: Mapping[str, str]
    """By name, the argument that names a model's folder."""
    source: str
    target: str
    options: Mapping[str, Any]
    """By the name of the parameter, such as gold_one_based; None and False were not given."""

    def words(self, figure: Figure, picture: Picture) -> str:
        """The command for one picture of a figure."""
        selection = picture.selection
        models = self.models.values() if selection is None else [self.models[selection.model]]
        values: dict[str, Any] = {name: self.options.get(name) for name in self.names(figure, picture)}
        if DETECTION not in figure.needs and "noise" in values:
            values["noise"] = [text for text in values["noise"] or () if text.startswith("shuffled=")]
        if selection is not None:
            values |= {"line": selection.line, "type": selection.type, "layer": selection.layer}
            values |= {"head": list(selection.heads)}
        arguments = ["rela", "plot", figure.key, *models, self.source, self.target]
        return shlex.join([*arguments, *option_words({**values, "out": picture.file})])

    def names(self, figure: Figure, picture: Picture) -> Iterator[str]:
        """The parameters that this picture depends on."""
        yield from ("limit", "device")
        if {SHUFFLED, DETECTION}.intersection(figure.needs):
            yield from ("seed", "noise")
        if ALIGNMENT in figure.needs:
            yield from (*GOLD, *GOLD_TEXT)
        selection = picture.selection
        of_pairs = self.options.get("gold_source") is None  # links of another text are not outlined
        if selection is not None and selection.gold and selection.type == "cross" and of_pairs:
            yield from GOLD


def option_words(values: Mapping[str, Any]) -> Iterator[str]:
    """Options as they are typed, by the name of the parameter: gold_one_based=True is --gold-one-based."""
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True:
                yield option
            elif item is not None and item is not False:
                yield from (option, str(item))
