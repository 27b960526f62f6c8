"""What tells one model, and one file, from another: whether stored scores still belong to them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rela.decoding.translate import Translator

ENDS = 1 << 20
"""Bytes that are read at each end of a file."""


def model_fingerprint(translator: Translator) -> str:
    """A hash of a model's weights, settings and subwords."""
    digest = hashlib.sha256(translator.subwords.model)
    digest.update(repr(translator.config.model).encode())
    for name, tensor in sorted(translator.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def file_fingerprint(path: str | Path) -> str:
    """The size of a file and a hash of its two ends, so that a large file is not read whole."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(max(size - ENDS, 0))
        digest.update(file.read(ENDS))
    return f"{size}:{digest.hexdigest()}"
