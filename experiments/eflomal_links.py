"""Word links by eflomal, trained on given text, for comparison with our aligners.

    python -m experiments.eflomal_links --train-source train.de --train-target train.en \\
        --source gold.de --target gold.en --out eflomal

Training and test pairs are aligned together (`pip install eflomal`). All text is lower-cased, and `daß` becomes `dass`.
Training text is split into words and punctuation, as the test text already is. The script writes `OUT.forward`,
`OUT.reverse` and one file for each symmetrisation, in Pharaoh format and for the test pairs only, and prints the
seconds.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from experiments import programs
from rela.data.corpus import read_pairs
from rela.evaluation.alignment import Link, pharaoh, symmetrise
from rela.evaluation.symmetrise import SYMMETRISATIONS
from rela.files import write_text

# A word may hold hyphens, apostrophes and digits with points; every other mark is a token of its own.
TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+(?:[-'’][^\W_]+)*|\S")
QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "–": "-"})


def normalised(text: str) -> str:
    """A tokenised line as eflomal is to see it."""
    return re.sub(r"\bdaß\b", "dass", text.translate(QUOTES).lower()).replace("|||", "|")


def tokenised(text: str) -> str:
    """Raw text split into words and punctuation; the English 's is a token."""
    return " ".join(TOKEN.findall(text.translate(QUOTES))).replace("'s", " 's")


def all_pairs(options: argparse.Namespace) -> tuple[list[tuple[str, str]], int]:
    """The test pairs, then the training pairs; and how many are test pairs."""
    test = [(normalised(a), normalised(b)) for a, b in read_pairs(options.source, options.target, "raise")]
    train: Iterator[tuple[str, str]] = read_pairs(options.train_source, options.train_target, "skip")
    words = str if options.train_tokenised else tokenised
    more = [(normalised(words(a)), normalised(words(b))) for a, b in islice(train, options.limit)]
    return test + more, len(test)


def read_test_links(path: Path, count: int) -> list[frozenset[Link]]:
    """The first `count` lines of eflomal's links."""
    with open(path, encoding="utf-8") as file:
        lines = list(islice(file, count))
    if len(lines) < count:
        raise ValueError(f"the aligner wrote links of {len(lines)} sentences; wanted those of {count}")
    return [frozenset((int(a), int(b)) for a, b in (link.split("-") for link in line.split())) for line in lines]


def write_links(out: Path, there: list[frozenset[Link]], back: list[frozenset[Link]]) -> None:
    """Write the links of both directions and of every symmetrisation, each to a file beside the others."""
    results = {"forward": there, "reverse": back}
    for method in SYMMETRISATIONS:
        results[method] = [symmetrise(one, other, method) for one, other in zip(there, back, strict=True)]
    for name, links in results.items():
        write_text(Path(f"{out}.{name}"), "".join(pharaoh(one) + "\n" for one in links))


def text_options(parser: argparse.ArgumentParser) -> None:
    """The options that name the text."""
    for name in ("train-source", "train-target", "source", "target", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument(
        "--train-tokenised", action="store_true", help="training text is already split into words by spaces"
    )
    parser.add_argument(
        "--limit", type=programs.at_least(1), help="use only this many training pairs, from the beginning"
    )


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text_options(parser)
    parser.add_argument("--model", type=int, default=3, help="1: IBM 1, 2: with HMM, 3: with fertility")
    options = parser.parse_args(arguments)
    try:
        from eflomal import Aligner
    except ImportError:
        raise SystemExit("eflomal is not installed: pip install eflomal") from None

    programs.check_output(options.out)
    pairs, count = all_pairs(options)
    with tempfile.TemporaryDirectory() as folder:
        forward, reverse = Path(folder) / "forward", Path(folder) / "reverse"
        started = time.perf_counter()
        Aligner(model=options.model).align(
            [source + "\n" for source, _ in pairs],
            [target + "\n" for _, target in pairs],
            links_filename_fwd=str(forward),
            links_filename_rev=str(reverse),
            quiet=True,
        )
        seconds = time.perf_counter() - started
        there, back = (read_test_links(path, count) for path in (forward, reverse))
    write_links(options.out, there, back)
    print(f"{len(pairs):,} pairs in {seconds:.1f} s, {len(pairs) / seconds:,.0f} pairs a second")
    return seconds


if __name__ == "__main__":
    sys.exit(programs.run(main))
