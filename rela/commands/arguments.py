"""What arguments of several commands mean: models by name, sentence pairs of two texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rela.terminal import paired_lines

if TYPE_CHECKING:
    from rela.decoding.translate import Translator
    from rela.report.parallel_text import ParallelText


def load_models(specifications: list[str], device: str) -> dict[str, Translator]:
    """Models by name: NAME=FOLDER, or the folder's own name (its parent's, where it is called model)."""
    from rela.decoding.translate import Translator

    return {name: Translator.load(folder, device) for name, folder in named_paths(specifications).items()}


def load_model(folder: Path, device: str) -> Translator:
    """The model of one folder, which may be written NAME=FOLDER too."""
    (translator,) = load_models([str(folder)], device).values()
    return translator


def named_paths(specifications: list[str]) -> dict[str, str]:
    """Paths by name: NAME=PATH, or the path's own name (its parent's, where that says more)."""
    paths: dict[str, str] = {}
    for text in specifications:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            path, whole = text, Path(text).absolute()
            plain = whole.name in ("model", "best", "averaged", "log.jsonl") and whole.parent.name
            name = whole.parent.name if plain else whole.name
        elif not name or not path:
            raise ValueError(f"{text!r} lacks a name or a path; wanted NAME=PATH")
        if name in paths:
            raise ValueError(f"two are called {name}; write NAME={path} to name one")
        paths[name] = path
    return paths


def check_limit(limit: int | None) -> None:
    """Refuse a `--limit` of no pairs."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; wanted at least 1")


def text_pairs(source: Path, target: Path, limit: int | None, on_empty: str = "raise") -> list[tuple[str, str]]:
    """Sentence pairs of two files; the first `limit` if that is given. An empty one is an error, or is kept."""
    from itertools import islice

    from rela.data.corpus import read_pairs

    check_limit(limit)
    pairs = paired_lines(source, target) if on_empty == "keep" else read_pairs(source, target, "raise")
    return list(islice(pairs, limit))


class Measurable:
    """Which pairs of a text can be measured by some models: not empty, and short enough; counts those that cannot."""

    def __init__(self, translators: Iterable[Any], tokenised: bool) -> None:
        self.translators, self.tokenised = list(translators), tokenised
        self.left_out: list[str] = []

    def numbers(self, source: Path, target: Path, pairs: list[tuple[str, str]]) -> list[int]:
        """The numbers of the pairs of two files that can be measured, counted from 0."""
        kept = []
        for number, pair in enumerate(pairs):
            if problem := self.problem(pair):
                self.left_out.append(f"{source} and {target.name}, line {number + 1}: {problem}")
            else:
                kept.append(number)
        if not kept:
            first = f"; {self.left_out[0]}" if self.left_out else ""
            raise ValueError(f"{source} and {target} have no pair that can be measured{first}")
        return kept

    def problem(self, pair: tuple[str, str]) -> str:
        """Why a pair cannot be measured; nothing if it can."""
        from rela.analysis.capture import encode
        from rela.decoding.translate import PairTooLong

        if not all(side.strip() for side in pair):
            return "empty"
        try:
            for translator in self.translators:
                encode(translator, *pair, self.tokenised)
        except PairTooLong as error:
            return str(error)
        return ""

    def warn(self) -> None:
        """Say how many pairs were left out, and why the first of them."""
        if self.left_out:
            count = f"{len(self.left_out)} pair{'s' * (len(self.left_out) > 1)} left out"
            warnings.warn(f"{count}, the first: {self.left_out[0]}", stacklevel=2)


def models_and_texts(words: list[str]) -> tuple[list[str], tuple[Path, Path] | None]:
    """Models, and the two texts behind them if there are any: a model is a folder, a text is a file."""
    if not any(is_file(word) for word in words):
        return words, None
    if len(words) < 3 or any(is_file(word) for word in words[:-2]) or not all(is_file(word) for word in words[-2:]):
        raise ValueError(f"came {' '.join(words)}; wanted MODEL... SRC TGT: folders of models, then two files of text")
    return words[:-2], (Path(words[-2]), Path(words[-1]))


def is_file(word: str) -> bool:
    return Path(word).exists() and not Path(word).is_dir()


@dataclass(frozen=True)
class TextOptions:
    """The options of a measured text that `rela analyse` and `rela plot` share, named as their parameters are."""

    gold: Path | None
    gold_one_based: bool
    gold_flipped: bool
    gold_source: Path | None
    gold_target: Path | None
    gold_tokenised: bool
    noise: list[str] | None
    limit: int | None
    seed: int


def measurable_text(
    source: Path, target: Path, options: TextOptions, translators: Iterable[Any], tokenised: bool = False
) -> ParallelText:
    """The text to measure without the pairs that no model can measure, which are counted in a warning.

    `tokenised` if that is true of its pairs, as --tokenised says. Gold links and noisy pairs are left out with the
    pairs that they belong to.
    """
    from rela.report.parallel_text import ParallelText

    text = parallel_text(source, target, options, tokenised)
    check = Measurable(translators, text.gold_tokenised)
    kept = check.numbers(source, target, list(text.pairs))
    noisy = {}
    for kind, files in map(noise_files, options.noise or ()):
        pairs = list((text.noise or {})[kind])
        usable = check.numbers(*files, pairs)
        if kind == "shuffled":  # goes line by line with the pairs
            usable = kept = sorted(set(kept) & set(usable))
        noisy[kind] = [pairs[i] for i in usable]
    gold, gold_pairs = text.gold, text.gold_pairs
    if gold_pairs is not None and gold is not None and options.gold_source and options.gold_target:
        usable = check.numbers(options.gold_source, options.gold_target, list(gold_pairs))
        gold, gold_pairs = [gold[i] for i in usable], [gold_pairs[i] for i in usable]
    elif gold is not None:
        gold = [gold[i] for i in kept]
    check.warn()
    return ParallelText(
        [text.pairs[i] for i in kept],
        gold,
        gold_pairs,
        tokenised=text.tokenised,
        gold_tokenised=text.gold_tokenised,
        noise=noisy or None,
        seed=text.seed,
        lines=kept,
    )


def parallel_text(source: Path, target: Path, options: TextOptions, tokenised: bool) -> ParallelText:
    """All pairs of the text to measure, read from its files, also those that cannot be measured."""
    from rela.evaluation.alignment import read_links
    from rela.report.parallel_text import ParallelText

    gold, gold_files = options.gold, (options.gold_source, options.gold_target)
    if any(gold_files) and not (all(gold_files) and gold):
        raise ValueError("--gold-source, --gold-target and --gold belong together")
    if tokenised and any(gold_files) and not options.gold_tokenised:
        raise ValueError("--tokenised is about SRC and TGT; wanted --gold-tokenised for the text of the gold links")
    links = None if gold is None else read_links(gold, options.gold_one_based, options.gold_flipped)
    gold_pairs = None
    if options.gold_source and options.gold_target:
        gold_pairs = text_pairs(options.gold_source, options.gold_target, None, "keep")
    elif links is not None:
        links = links[: options.limit]
    noisy = {kind: text_pairs(*files, options.limit, "keep") for kind, files in map(noise_files, options.noise or ())}
    return ParallelText(
        text_pairs(source, target, options.limit, "keep"),
        links,
        gold_pairs,
        tokenised=tokenised,
        gold_tokenised=options.gold_tokenised or tokenised,
        noise=noisy or None,
        seed=options.seed,
    )


def noise_files(text: str) -> tuple[str, tuple[Path, Path]]:
    """KIND=SOURCE,TARGET taken apart."""
    kind, equals, files = text.partition("=")
    parts = files.split(",")
    if not (equals and kind) or len(parts) != 2:
        raise ValueError(f"noise is {text!r}; wanted KIND=SOURCE,TARGET")
    return kind, (Path(parts[0]), Path(parts[1]))
