"""English–French proceedings, tokenised like the Hansards' gold links, as training text for aligners.

    python -m experiments.hansards_text --corpus europarl-en-fr --gold gold-align-en-fr --out data/hansards

The gold links count lower-case words, hyphens as words, and French contractions written out: `l'avis du ministre` is
`le avis de le ministre`. The script reads `train`, `valid`, `test` (`.en.xz`, `.fr.xz`) of the corpus and `hansards` of
the gold folder. It writes the same names without `.xz`, one sentence on each line, with spaces between words. The gold
sentences are already split into words and are only lower-cased. Abbreviations lose their full stop. So the models of
`configs/small-en-fr.yaml` and eflomal (`experiments.eflomal_links --train-tokenised`) are trained on the same words.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import programs
from experiments.eflomal_links import normalised, tokenised
from rela.data.corpus import read_pairs
from rela.files import write_text

ELISIONS = {
    **{letter: f"{letter}e" for letter in "cdjlmnst"},
    **{f"{stem}qu": f"{stem}que" for stem in ("", "jus", "lors", "puis", "quoi", "quel", "pres")},
}
CONTRACTIONS = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}


def english(text: str) -> str:
    """The words of an English sentence: hyphens apart, n't written out."""
    words = re.sub(r"\bcan't\b", "can not", normalised(tokenised(text)))
    return apart(re.sub(r"n't\b", " not", words))


def french(text: str) -> str:
    """The words of a French sentence: hyphens apart, elisions and contractions written out."""
    found = [CONTRACTIONS.get(word, word) for token in normalised(tokenised(text)).split() for word in written(token)]
    return apart(re.sub(r"\bm \.", "m", " ".join(found)))


def gold(text: str) -> str:
    """The words of a sentence that has them already: as many, lower-cased, abbreviations without their full stop."""
    return " ".join(re.sub(r"(?<=[^\W\d])\.$", "", word) for word in normalised(text).split())


def written(token: str) -> list[str]:
    """A token whose elided words are written out: `qu'il` is `que il`; `aujourd'hui` is cut, as in the gold."""
    *elided, last = token.split("'")
    words = []
    for stem, following in zip(elided, [*elided[1:], last], strict=False):
        words.append("si" if stem == "s" and following in ("il", "ils") else ELISIONS.get(stem, f"{stem}'"))
    return [*words, last] if last else words


def apart(text: str) -> str:
    """The same with a hyphen inside a word as a word of its own."""
    return " ".join(re.sub(r"(?<=\w)-(?=\w)", " - ", text).split())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("corpus", "gold", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    sides: list[tuple[str, Callable[[str], str]]] = [("en", english), ("fr", french)]
    for folder, name in (*((options.corpus, part) for part in ("train", "valid", "test")), (options.gold, "hansards")):
        pairs = list(read_pairs(folder / f"{name}.en.xz", folder / f"{name}.fr.xz", "raise"))
        for side, (language, words) in enumerate(sides):
            write = gold if name == "hansards" else words
            write_text(options.out / f"{name}.{language}", "".join(f"{write(pair[side])}\n" for pair in pairs))
        print(f"{options.out}/{name}: {len(pairs):,} pairs", flush=True)


if __name__ == "__main__":
    sys.exit(programs.run(main))
