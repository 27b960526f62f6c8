"""Corpora as files, and the tables the filter writes."""

import csv

from tests.tiny_models import toy_pairs

TRUSTED = toy_pairs(40, seed=11)
"""Pairs that detectors are fitted on."""
ATTACK = ("<script>alert(1)</script>", "<img src=x onerror=alert(2)>\tbehind a tab")


def write_lines(path, lines):
    path.write_bytes(
        b"".join(
            line if isinstance(line, bytes) else line.encode()
            for line in (f"{x}\n" if isinstance(x, str) else x for x in lines)
        )
    )
    return path


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def write_corpus(folder):
    """41 pairs, one of them an attack, and the two files they are written to."""
    pairs = [*toy_pairs(40), ATTACK]
    return (
        pairs,
        write_lines(folder / "c.en", [source for source, _ in pairs]),
        write_lines(folder / "c.de", [target for _, target in pairs]),
    )
