"""The toy corpus: sentence pairs drawn from the grammar, split, and written as plain text."""

import contextlib
import filecmp
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from random import Random

from rela.files import replacing
from rela.toy.constructions import CONSTRUCTIONS, construction
from rela.toy.words import Links

# Constructions of few sentences, drawn less often than the others, so that they are not used up at once.
_RARE = {"profession": 0.25, "quality": 0.7, "existence": 0.5}
# A draw fails when its sentence has been drawn before. So many failures in a row mean that there is nothing left.
_PATIENCE = 100_000


@dataclass(frozen=True)
class ToyPair:
    """An English sentence, its German translation, and the links between their words.

    Words and punctuation are separated by single spaces. Links are sorted 0-based pairs (source word, target word);
    they follow from the grammar, and words without counterpart have none. `noise` says what has been done to a pair
    on purpose: "none", "shuffled", "wrong-language", "insertion" or "omission".
    """

    source: str
    target: str
    links: Links
    construction: str
    noise: str = "none"


def generate(count: int, seed: int) -> Iterator[ToyPair]:
    """`count` pairs, the same for the same seed; no source sentence and no target sentence comes twice."""
    if count < 0:
        raise ValueError(f"cannot generate {count} pairs; the count must not be negative")
    return islice(_endless(seed), count)


def _endless(seed: int) -> Iterator[ToyPair]:
    """New pairs for as long as the grammar has any."""
    random = Random(seed)
    spaces = [(name, construction(name)) for name in CONSTRUCTIONS]
    weights = [_RARE.get(name, 1.0) for name in CONSTRUCTIONS]
    thresholds = [step / sum(weights) for step in accumulate(weights)][:-1]
    seen: set[str] = set()
    failures = 0
    while failures < _PATIENCE:
        name, space = spaces[bisect_right(thresholds, random.random())]
        sentence = space.sample(random)
        # One set serves both languages: no sentence is English and German at once.
        # Without the final stop: another stop does not make a sentence new.
        texts = {sentence.english[:-1], sentence.german[:-1]}
        if seen & texts:
            failures += 1
            continue
        failures = 0
        seen |= texts
        yield ToyPair(sentence.english, sentence.german, sentence.links, name)


def split(train: int, valid: int, test: int, seed: int) -> tuple[list[ToyPair], list[ToyPair], list[ToyPair]]:
    """Training, validation and test pairs that share no sentence in either language.

    Validation and test pairs are drawn first, so that they stay the same when more training pairs are asked for.
    """
    if min(train, valid, test) < 0:
        raise ValueError(f"cannot split into {train}, {valid} and {test} pairs; no count may be negative")
    pairs = generate(train + valid + test, seed)
    held_out = list(islice(pairs, valid + test))
    return list(pairs), held_out[:valid], held_out[valid:]


def sentence_counts() -> dict[str, int]:
    """How many sentences the grammar has, by construction: sums and products over its choices, not an estimate."""
    return {name: construction(name).size for name in CONSTRUCTIONS}


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as "0-0 1-2": source word, hyphen, target word."""
    return " ".join(f"{source}-{target}" for source, target in links)


def write_corpus(
    directory: Path,
    pairs_by_split: Mapping[str, Iterable[ToyPair]],
    source: str = "en",
    target: str = "de",
    labels: bool = False,
    replace: bool = True,
) -> None:
    """Write each split as SPLIT.en, SPLIT.de and SPLIT.align, a line for each pair; with `labels` also SPLIT.tsv.

    The tsv holds construction and noise. No file is seen half-written: all are written under other names first.
    Without `replace` a file that holds something else is an error, and none is written.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:  # renames all files after all are written, or removes them
        for name, pairs in pairs_by_split.items():
            pairs = list(pairs)
            columns = {
                source: (pair.source for pair in pairs),
                target: (pair.target for pair in pairs),
                "align": (pharaoh(pair.links) for pair in pairs),
            }
            if labels:
                columns["tsv"] = (f"{pair.construction}\t{pair.noise}" for pair in pairs)
            for suffix, lines in columns.items():
                final = directory / f"{name}.{suffix}"
                path = stack.enter_context(replacing(final))
                with path.open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(f"{line}\n" for line in lines)
                if not replace and final.is_file() and not filecmp.cmp(path, final, shallow=False):
                    raise ValueError(f"{final} is there and holds other text; --force replaces it")
