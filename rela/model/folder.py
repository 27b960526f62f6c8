"""A model on disk: model.safetensors, config.yaml and subwords.model in one folder. No pickle is ever loaded."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from torch import Tensor

from rela.config import Config, from_dict, read_yaml, save_config
from rela.files import replacing_folder
from rela.model.transformer import Transformer

WEIGHTS, CONFIG, SUBWORDS = "model.safetensors", "config.yaml", "subwords.model"


class ModelFolderError(ValueError):
    """A model folder that is missing, incomplete or damaged."""


def save_folder(path: str | Path, config: Config, weights: dict[str, Tensor], subwords: bytes) -> None:
    """Write a model folder; an existing one is replaced only when the new one is complete, anything else never."""
    path = Path(path)
    if path.exists() and not is_replaceable(path):
        raise ModelFolderError(f"{path} is there and is no model folder; it is not replaced by one")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(path) as fresh:
        save_weights(weights, fresh / WEIGHTS)
        save_config(config, fresh / CONFIG)
        (fresh / SUBWORDS).write_bytes(subwords)


def is_replaceable(path: Path) -> bool:
    """Whether a path is an empty folder, or holds a model and no folders: a run's own directory is neither."""
    if not path.is_dir():
        return False
    inside = list(path.iterdir())
    return not inside or ((path / WEIGHTS).is_file() and not any(item.is_dir() for item in inside))


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Tensors to a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save, save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    try:
        if is_utf8(path):
            save_file(tensors, path)
        else:
            path.write_bytes(save(tensors))
    except SafetensorError as error:  # also what a full disk comes as
        raise OSError(f"{path} could not be written: {error}") from None


def is_utf8(path: Path) -> bool:
    """Whether the name of a file is UTF-8, which safetensors wants it to be."""
    return os.fsencode(path).decode("utf-8", "ignore") == str(path)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, or a one-line error that names it."""
    from safetensors import SafetensorError
    from safetensors.torch import load, load_file

    try:
        weights = load_file(path) if is_utf8(path) else load(path.read_bytes())
    except FileNotFoundError:
        raise ModelFolderError(f"{path} is missing") from None
    except SafetensorError as error:
        raise ModelFolderError(f"{path} is damaged or truncated: {error}") from None
    for name, tensor in weights.items():
        if not bool(tensor.isfinite().all()):
            raise ModelFolderError(f"{path}: {name} holds values that are no finite numbers")
    return weights


def unique_weights(model: Transformer) -> dict[str, Tensor]:
    """The state dict without second names of tied tensors."""
    seen: set[int] = set()
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor
    return weights


def load_into(model: Transformer, weights: dict[str, Tensor], where: str) -> None:
    """Put stored weights into a model whose shape they must fit."""
    wanted = unique_weights(model)
    if missing := sorted(wanted.keys() - weights.keys()):
        raise ModelFolderError(f"{where} lacks {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}")
    if extra := sorted(weights.keys() - wanted.keys()):
        raise ModelFolderError(
            f"{where} holds {', '.join(extra[:3])}{' …' if len(extra) > 3 else ''}, which the config does not know"
        )
    for name, tensor in wanted.items():
        if weights[name].shape != tensor.shape:
            raise ModelFolderError(
                f"{where}: {name} is {list(weights[name].shape)}; the config wants {list(tensor.shape)}"
            )
    model.load_state_dict(weights, strict=False)


def find_model(path: str | Path) -> Path:
    """The model folder that a path means: itself, or the finished or else the best model of a run's folder."""
    path = Path(path)
    if (path / WEIGHTS).is_file():
        return path
    for name in ("model", "best"):
        if (path / name / WEIGHTS).is_file():
            return path / name
    return path


def load_folder(path: str | Path) -> tuple[Transformer, Config, bytes]:
    """The model, its config and its subword model, read from its folder or from that of its run."""
    asked, path = Path(path), find_model(path)
    if path != asked and path.name == "best":
        warnings.warn(f"{asked} has no finished model; its best one so far, {path}, is taken", stacklevel=2)
    if not path.is_dir():
        raise ModelFolderError(f"{path} is not a model folder; wanted one with {WEIGHTS}, {CONFIG} and {SUBWORDS}")
    for name in (WEIGHTS, CONFIG, SUBWORDS):
        if not (path / name).is_file():
            raise ModelFolderError(f"{path} has no {name}; wanted a folder with {WEIGHTS}, {CONFIG} and {SUBWORDS}")
    try:
        config = from_dict(Config, read_yaml(path / CONFIG), str(path / CONFIG))
    except ValueError as error:
        raise ModelFolderError(str(error)) from None
    try:
        model = Transformer(config.model)
    except ValueError as error:  # an attention kind, say, that there is not
        raise ModelFolderError(f"{path / CONFIG}: {error}") from None
    load_into(model, load_weights(path / WEIGHTS), str(path / WEIGHTS))
    return model.eval(), config, (path / SUBWORDS).read_bytes()
