"""How well `rela check` finds single words without a counterpart: AUROC of each number of a word, on both sides.

    python -m experiments.word_detection --forward models/de-en --reverse models/en-de \\
        --source test.de --target test.en --pairs 300 --output rows.json
    python -m experiments.word_detection --forward models/de-en --reverse models/en-de \\
        --source gold.de --target gold.en --gold gold.talp --gold-one-based --output rows.json

Without gold links, one word of a side is replaced by a word of another pair, or one word or eight are inserted; these
are the words to be found. With gold links (of tokenised text), one word or eight are left out of the other side, and
the words to be found are those that all lost their links by it; words that lost some of their links, or had none, are
not counted. All other words of the same sentences are good ones. Intervals are by bootstrap over the sentences.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import programs
from rela.analysis.tokenised import raw_text
from rela.data.corpus import read_pairs
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks, read_links
from rela.files import write_text
from rela.filtering.check import Checker, WordCheck
from rela.filtering.detection import auroc
from rela.filtering.noise import Pair, derangement

SIDES = ("source", "target")
RUN = 8
"""Words in a row that are inserted or left out."""
LOW = ("log_prob", "link", "attention")
"""Numbers that are low where a counterpart is absent; the others are high."""
Labels = list[bool | None]
"""Of each word of a side whether it has no counterpart; None if it is not counted."""
Case = tuple[Pair, Labels]


def replaced(words: list[str], others: list[str], random: Random) -> tuple[list[str], range]:
    """The words with one of them replaced by another sentence's, and which."""
    place = random.randrange(len(words))
    choices = [word for word in others if word.casefold() != words[place].casefold()]
    new = [random.choice(choices or ["…"])]
    return words[:place] + new + words[place + 1 :], range(place, place + 1)


def inserted(words: list[str], others: list[str], random: Random, count: int = 1) -> tuple[list[str], range]:
    """The words with some of another sentence's that stand in a row between them, and which."""
    place, start = random.randrange(len(words) + 1), random.randrange(max(len(others) - count, 0) + 1)
    new = others[start : start + count]
    return words[:place] + new + words[place:], range(place, place + len(new))


def inserted_run(words: list[str], others: list[str], random: Random) -> tuple[list[str], range]:
    return inserted(words, others, random, RUN)


NOISES = {"replaced": replaced, "inserted": inserted, f"{RUN} inserted": inserted_run}


def noisy_cases(pairs: Sequence[Pair], side: int, kind: str, seed: int) -> list[Case]:
    """Pairs with words on one side that have no counterpart."""
    random, cases = Random(seed), []
    for pair, other in zip(pairs, derangement(len(pairs), seed), strict=True):
        words, new = NOISES[kind](pair[side].split(), pairs[other][side].split(), random)
        text = " ".join(words)
        made = (text, pair[1]) if side == 0 else (pair[0], text)
        labels: Labels = [i in new for i in range(len(words))]
        cases.append((made, labels))
    return cases


def shortened_cases(pairs: Sequence[Pair], gold: Sequence[GoldLinks], side: int, run: int, seed: int) -> list[Case]:
    """Pairs of tokenised text without some words in a row of the other side, of which the words of a side are labelled.

    The text is shown to the models as raw text. Pairs in which no word lost all of its links are left out.
    """
    random, cases = Random(seed), []
    for pair, links in zip(pairs, gold, strict=True):
        tokens = [text.split() for text in pair]
        words = [raw_text(one).split() for one in tokens]
        numbers = [word_of_token(*one) for one in zip(tokens, words, strict=True)]
        linked: list[set[int]] = [set() for _ in words[side]]
        for link in links.sure | links.possible:
            if all(tokens[k][link[k]][0].isalnum() for k in (0, 1)):
                ends = [numbers[k][link[k]] for k in (0, 1)]
                linked[ends[side]].add(ends[1 - side])
        left = words[1 - side]
        if len(left) <= run:
            continue
        start = random.randrange(len(left) - run + 1)
        gone = set(range(start, start + run))
        labels: Labels = [None if not w or (w & gone and w - gone) else bool(w & gone) for w in linked]
        if True in labels:
            texts = [" ".join(words[side]), " ".join(word for i, word in enumerate(left) if i not in gone)]
            cases.append(((texts[0], texts[1]) if side == 0 else (texts[1], texts[0]), labels))
    return cases


def word_of_token(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """The number of the word that each token is in, of words that are tokens put together."""
    ends = list(accumulate(map(len, words)))
    return [bisect_right(ends, start) for start in accumulate(map(len, tokens[:-1]), initial=0)]


def rows_of(what: str, checker: Checker, cases: Sequence[Case], side: int, resamples: int) -> Iterator[dict[str, Any]]:
    """A row for each number of the side's words: AUROC at telling the words to be found from the others."""
    checked = [
        (check.source_words if side == 0 else check.target_words, labels)
        for check, (_, labels) in zip(checker.check(pair for pair, _ in cases), cases, strict=True)
    ]
    words = [
        [(word, label) for word, label in zip(found, labels, strict=True) if label is not None]
        for found, labels in checked
        if found is not None
    ]
    bad = [np.array([label for _, label in sentence], dtype=bool) for sentence in words]
    flagged = [np.array([word.flagged for word, _ in sentence], dtype=bool) for sentence in words]
    common = {
        "side": SIDES[side],
        "what": what,
        "bad": int(sum(map(np.sum, bad))),
        "good": int(sum(np.sum(~one) for one in bad)),
        "flagged of bad": float(np.concatenate(flagged)[np.concatenate(bad)].mean()),
        "flagged of good": float(np.concatenate(flagged)[~np.concatenate(bad)].mean()),
    }
    for name in ("missing", "lacking", "link", "null", "log_prob", "attention"):
        values = [np.array([badness(word, name) for word, _ in sentence]) for sentence in words]
        if not any(np.isnan(one).any() for one in values):
            low, high = interval(values, bad, resamples)
            yield {"by": name, "auroc": of_sentences(values, bad), "low": low, "high": high, **common}


def badness(word: WordCheck, name: str) -> float:
    """A number of a word, turned so that high is bad; NaN if it has none."""
    value = getattr(word, name)
    return float("nan") if value is None else -value if name in LOW else value


def of_sentences(values: Sequence[NDArray[np.float64]], bad: Sequence[NDArray[np.bool_]]) -> float:
    """The AUROC over the words of all sentences."""
    together, labels = np.concatenate(values), np.concatenate(bad)
    return auroc(together[~labels], together[labels])


def interval(
    values: Sequence[NDArray[np.float64]], bad: Sequence[NDArray[np.bool_]], resamples: int, seed: int = 1
) -> tuple[float, float]:
    """The 95 % confidence interval of the AUROC, by bootstrap over sentences."""
    random, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        picked = random.integers(len(values), size=len(values)).tolist()
        found.append(of_sentences([values[i] for i in picked], [bad[i] for i in picked]))
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("forward", "source", "target"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--reverse", type=Path)
    parser.add_argument("--gold", type=Path, help="gold links of the text, which is tokenised")
    parser.add_argument("--gold-one-based", action="store_true")
    parser.add_argument(
        "--skip", type=programs.at_least(0), default=0, help="pairs at the start of the text that are not used"
    )
    parser.add_argument("--pairs", type=programs.at_least(1))
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--resamples", type=programs.at_least(1), default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)

    programs.check_output(options.output)
    reverse = None if options.reverse is None else Translator.load(options.reverse, options.device)
    checker = Checker(Translator.load(options.forward, options.device), reverse)
    chosen = slice(options.skip, None if options.pairs is None else options.skip + options.pairs)
    pairs = list(islice(read_pairs(options.source, options.target, "raise"), chosen.stop))[chosen.start :]
    if not pairs:
        raise ValueError(f"{options.source} has no pairs after the first {options.skip}; wanted a smaller --skip")
    gold = None if options.gold is None else read_links(options.gold, options.gold_one_based)[chosen]
    if gold is not None and len(gold) != len(pairs):
        raise ValueError(f"{options.gold} has links of {len(gold)} of these sentences; the text has {len(pairs)}")
    rows = []
    for side in (1, 0):
        if gold is not None:
            made = {f"{run} left out": shortened_cases(pairs, gold, side, run, options.seed) for run in (1, RUN)}
        else:
            made = {kind: noisy_cases(pairs, side, kind, options.seed) for kind in NOISES}
        for what, cases in made.items():
            for row in rows_of(what, checker, cases, side, options.resamples):
                rows.append(row)
                shares = f"flagged {row['flagged of bad']:.3f} of bad, {row['flagged of good']:.3f} of good"
                figures = f"{row['auroc']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
                print(f"{figures}  {row['side']} words, {row['what']}, by {row['by']}; {shares}")
    if options.output:
        write_text(options.output, json.dumps({"rows": rows}, indent=1))
    return rows


if __name__ == "__main__":
    sys.exit(programs.run(main))
