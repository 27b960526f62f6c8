"""`rela translate` of lines: what is printed of each translation, and where it is written, at once or resumably."""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rela.commands.resumable import make_resumable, model_digests
from rela.files import checksum
from rela.terminal import RepeatedLines, input_lines, output_lines, progress_bars, prompted

if TYPE_CHECKING:
    from rela.alignment.online import OnlineLinks
    from rela.decoding.rerank import Reranker
    from rela.decoding.translate import Translation, Translator


@dataclass(frozen=True)
class Columns:
    """What is printed of each translation."""

    nbest: int = 1
    """Translations of each line."""
    scores: bool = False
    alignments: bool = False
    format: str = "text"
    """"text", whose columns are separated by tabs, or "jsonl"."""

    @property
    def given(self) -> dict[str, bool]:
        """Whether each of the options was given, by its name on the command line."""
        return {
            "--nbest": self.nbest > 1,
            "--scores": self.scores,
            "--alignments": self.alignments,
            "--format": self.format != "text",
        }

    def line(self, number: int, rank: int, source: str, item: Translation) -> str:
        """The translation of rank `rank`, from 0, of line `number`, from 0, as it is printed."""
        from rela.evaluation.alignment import pharaoh

        links = None if item.links is None else pharaoh(item.links)
        if self.format == "jsonl":
            row = {
                "line": number,
                "rank": rank,
                "source": source,
                "translation": item.text,
                "score": item.score,
                "log_prob": item.log_prob,
            }
            row = row if links is None else {**row, "alignment": links}
            return json.dumps(row, ensure_ascii=False, allow_nan=False)
        fields = [str(number)] if self.nbest > 1 else []
        fields += [f"{item.score:.6f}"] if self.scores else []
        return "\t".join([*fields, item.text] + ([] if links is None else [links]))


class TranslatedLines:
    """The translations of a file, or of the standard input, which at a terminal is a dialogue line by line."""

    def __init__(
        self,
        translator: Translator,
        source: Path | None,
        columns: Columns,
        options: dict[str, Any],
        window: int | None = None,
        prefixes: Path | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """`options` are those of `Translator.translate`; `window` lines are read before the first is answered."""
        from rela.decoding.windows import WINDOW

        self.translator, self.columns, self.options, self.reranker = translator, columns, options, reranker
        typed = source is None and sys.stdin.isatty()
        self.window = (1 if typed else WINDOW) if window is None else window
        self.links = make_links(translator) if columns.alignments else None
        self.in_dialogue = typed and sys.stderr.isatty()
        self.sources = RepeatedLines(prompted(input_lines(source)) if self.in_dialogue else input_lines(source))
        self.prefix_file = prefixes
        self.prefixes = None if prefixes is None else input_lines(prefixes)

    def translated(self, first: int = 0) -> Iterator[tuple[str, list[str]]]:
        """Each source line that is still to be read, the first of which has the number `first`, and its output."""
        groups = self.translator.translate_stream(
            self.sources,
            self.columns.nbest,
            self.window,
            self.links,
            self.prefixes,
            self.reranker,
            first,
            **self.options,
        )
        for number, group in enumerate(groups, start=first):
            source = self.sources.take()
            yield source, [self.columns.line(number, rank, source, item) for rank, item in enumerate(group)]

    def write(self, out: Path | None) -> None:
        """Write all translations to a file that appears when it is complete, or to the standard output."""
        with output_lines(out, None if self.in_dialogue else "translated") as write:
            for _, lines in self.translated():
                for line in lines:
                    write(line)

    def write_resumable(self, out: Path | None, models: list[str | Path], rerank_weight: float | None) -> None:
        """Write all translations to a file that may have been begun before with the same settings."""
        output = make_resumable(out, self.settings(models) | {"rerank_weight": rerank_weight})
        with output.opened(self.sources.lines) as write, progress_bars() as tell:
            done = output.position.lines
            if self.prefixes is not None:
                next(islice(self.prefixes, done, done), None)
            if done:
                print(f"resumed at line {done + 1:,}", file=sys.stderr)
            for number, (source, lines) in enumerate(self.translated(done), start=done + 1):
                for line in lines:
                    write(line)
                output.count(source)
                if number % self.window == 0:
                    output.window_done()
                tell("translate", number, None)

    def settings(self, models: list[str | Path]) -> dict[str, Any]:
        """What a file that was begun must have been made with, so that the rest of it fits."""
        columns = self.columns
        return {
            "models": model_digests(models),
            "options": dataclasses.asdict(dataclasses.replace(self.translator.config.decode, **self.options)),
            "prefixes": None if self.prefix_file is None else checksum(self.prefix_file),
            "device": self.translator.device.type,
            "columns": [columns.nbest, columns.scores, columns.alignments, columns.format],
            "window": self.window,
        }


def make_links(translator: Translator) -> OnlineLinks:
    """What reads the word links of a model; the head it remembers is read from its folder once."""
    from rela.alignment.online import OnlineLinks

    links = OnlineLinks(translator)
    if not links.chosen:
        warnings.warn(
            f"no heads were chosen for the word links of {translator.folder}; its middle layer is read, which may be "
            "far from the best (choose by rela fit-aligner)",
            stacklevel=2,
        )
    return links
