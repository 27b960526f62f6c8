"""A small parallel text made by rule."""

import random

from rela.config import CorpusConfig

ENGLISH = ["the cat", "a dog", "sees", "the mouse", "and", "sleeps", "in the house", "today"]
GERMAN = ["die Katze", "ein Hund", "sieht", "die Maus", "und", "schläft", "im Haus", "heute"]


def make_pairs(count, seed=0):
    generator = random.Random(seed)
    words = [[generator.randrange(8) for _ in range(generator.randint(1, 6))] for _ in range(count)]
    return [(" ".join(ENGLISH[w] for w in ws), " ".join(GERMAN[w] for w in ws)) for ws in words]


def write_pairs(folder, name, pairs):
    for side, suffix in ((0, "en"), (1, "de")):
        (folder / f"{name}.{suffix}").write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return CorpusConfig(f"{name}.en", f"{name}.de")
