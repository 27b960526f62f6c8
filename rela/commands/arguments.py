"""What arguments of several commands mean: models by name, sentence pairs of two texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load_models(specifications: list[str], device: str) -> dict[str, Any]:
    """Models by name: NAME=FOLDER, or the folder's own name (its parent's, where it is called model)."""
    from rela.decoding.translate import Translator

    return {name: Translator.load(folder, device) for name, folder in named_paths(specifications).items()}


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


def text_pairs(source: Path, target: Path, limit: int | None) -> list[tuple[str, str]]:
    """Sentence pairs of two files, none of them empty; the first `limit` if that is given."""
    from itertools import islice

    from rela.data.corpus import read_pairs

    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; wanted at least 1")
    return list(islice(read_pairs(source, target, "raise"), limit))


def models_and_texts(words: list[str]) -> tuple[list[str], tuple[Path, Path] | None]:
    """Models, and the two texts behind them if there are any: a model is a folder, a text is a file."""
    if not any(is_file(word) for word in words):
        return words, None
    if len(words) < 3 or any(is_file(word) for word in words[:-2]) or not all(is_file(word) for word in words[-2:]):
        raise ValueError(f"came {' '.join(words)}; wanted MODEL... SRC TGT: folders of models, then two files of text")
    return words[:-2], (Path(words[-2]), Path(words[-1]))


def is_file(word: str) -> bool:
    return Path(word).exists() and not Path(word).is_dir()
