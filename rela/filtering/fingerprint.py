"""What tells one model, and one file, from another: whether stored scores still belong to them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from torch import nn

from rela.alignment.joint import JointAligner
from rela.decoding.translate import Translator

ENDS = 1 << 20
"""Bytes that are read at each end of a file."""


def model_fingerprint(translator: Translator) -> str:
    """A hash of a model's weights, settings and subwords."""
    digest = hashlib.sha256(translator.subwords.model)
    digest.update(repr(translator.config.model).encode())
    add_weights(digest, translator.model)
    return digest.hexdigest()


def aligner_fingerprint(aligner: JointAligner) -> str:
    """A hash of the weights of a trained aligner."""
    digest = hashlib.sha256()
    add_weights(digest, aligner.module)
    return digest.hexdigest()


def add_weights(digest: hashlib._Hash, module: nn.Module) -> None:
    """Add the weights of a module and their names to a hash."""
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())


def file_fingerprint(path: str | Path) -> str:
    """The size of a file and a hash of its two ends, so that a large file is not read whole."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(max(size - ENDS, 0))
        digest.update(file.read(ENDS))
    return f"{size}:{digest.hexdigest()}"
