"""Beginning with the weights of another model: `train.from`."""

from __future__ import annotations

import warnings

from rela.config import Config
from rela.files import checksum
from rela.model.folder import WEIGHTS, ModelFolderError, find_model, load_folder, load_into, unique_weights
from rela.model.transformer import Transformer


def begin_from(model: Transformer, config: Config, subwords: bytes) -> str:
    """The SHA-256 of the weights of `train.from`, which are put into a model that they must fit."""
    folder = config.train.from_
    try:
        before, theirs, vocabulary = load_folder(folder)
        if vocabulary != subwords:
            other = f"{folder} has another vocabulary than {config.data.directory}"
            raise ModelFolderError(f"{other}; prepare the text with data.subwords={find_model(folder)}/subwords.model")
        if theirs.model.heads != config.model.heads:
            raise ModelFolderError(f"{folder} has {theirs.model.heads} heads; wanted {config.model.heads}")
        load_into(model, unique_weights(before), folder)
    except ModelFolderError as error:
        raise ModelFolderError(f"train.from: {error}") from None
    kinds = config.model.attention_kinds
    for part, kind in theirs.model.attention_kinds.items():
        if kind != kinds[part]:
            warnings.warn(f"train.from: the {part} attention of {folder} is {kind}, here {kinds[part]}", stacklevel=2)
    return checksum(find_model(folder) / WEIGHTS)
