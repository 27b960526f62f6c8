"""Spellings of version 0.1's options, rewritten to today's with a warning; to be removed with version 0.3."""

from __future__ import annotations

import warnings

GOLD = {"--one-based": "--gold-one-based", "--flip-gold": "--gold-flipped"}
OPTIONS = {
    "analyse": {**GOLD, "--tokenised": "--gold-tokenised"},
    "plot": GOLD,
    "align": GOLD,
    "explore": {**GOLD, "--export": "--out", "--source": "--sentence", "--target": "--translation"},
    "aer": {
        "--one-based-gold": "--gold-one-based",
        "--flip-gold": "--gold-flipped",
        "--one-based-hypothesis": "--hypothesis-one-based",
        "--flip-hypothesis": "--hypothesis-flipped",
    },
}
# Pairs of options that are the last two arguments, SRC TGT, now.
TEXTS = {
    "analyse": ("--source", "--target"),
    "plot": ("--source", "--target"),
    "explore": ("--gold-source", "--gold-target"),
}


def renew(arguments: list[str]) -> list[str]:
    """The same command line in today's spelling; a command line that is in it already comes back as it is."""
    command = arguments[0] if arguments else ""
    names, (source, target) = OPTIONS.get(command, {}), TEXTS.get(command, ("", ""))
    renewed, texts, rest = [], {}, iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in names:
            warnings.warn(f"{name} is called {names[name]} now", stacklevel=2)
            word = names[name] + equals + value
        elif name in (source, target) and name:
            texts[name] = value if equals else next(rest, "")
            continue
        renewed.append(word)
    if not texts:
        return renewed
    if texts.keys() != {source, target}:
        raise ValueError(f"{source} and {target} belong together; better, write SRC TGT behind the models")
    warnings.warn(f"{source} and {target} are the last two arguments now: rela {command} … SRC TGT", stacklevel=2)
    return [*renewed, texts[source], texts[target]]
