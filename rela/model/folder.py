"""A model on disk: model.safetensors, config.yaml and subwords.model in one folder. No pickle is ever loaded."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rela.config import Config, from_dict, read_yaml, save_config
from rela.files import check_regular, final_name, read_part, replacing_folder
from rela.model.transformer import Transformer

WEIGHTS, CONFIG, SUBWORDS = "model.safetensors", "config.yaml", "subwords.model"
OURS = re.compile(
    r"(model|optimiser)\.safetensors|config\.yaml|subwords\.model|(progress|finished|check)\.json|align\w*\.\w+"
)
"""The files that belong to the model of a folder or checkpoint, and go with it."""
SUBWORDS_HASH = "subwords_sha256"
"""The entry of the weights' own metadata that names their subword model."""
LARGEST_HEADER = 1 << 24
"""Bytes: a hundred for each of the tensors that the largest models have, and more."""


class ModelFolderError(ValueError):
    """A model folder that is missing, incomplete or damaged."""


def save_folder(path: str | Path, config: Config, weights: dict[str, Tensor], subwords: bytes) -> None:
    """Write a model folder; an existing one is replaced only when the new one is complete, anything else never.

    Files in the folder that are no part of a model stay in it.
    """
    path = Path(path)
    if path.exists() and not is_replaceable(path):
        raise ModelFolderError(f"{path} is there and is no model folder; it is not replaced by one")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(path) as fresh:
        save_weights(weights, fresh / WEIGHTS, subwords)
        save_config(config, fresh / CONFIG)
        (fresh / SUBWORDS).write_bytes(subwords)
        for file in path.iterdir() if path.is_dir() else ():
            if not OURS.fullmatch(file.name):
                shutil.copy2(file, fresh / file.name, follow_symlinks=False)


def is_replaceable(path: Path) -> bool:
    """Whether a path is an empty folder, or holds a model and no folders: a run's own directory is neither."""
    if not path.is_dir():
        return False
    inside = list(path.iterdir())
    return not inside or ((path / WEIGHTS).is_file() and not any(item.is_dir() for item in inside))


def check_output_folder(out: Path, model: Path, marker: str, known: re.Pattern[str]) -> None:
    """Refuse to write a folder made of a model where something would be lost.

    It may be new or empty, or hold `marker`, which such folders have, and files of `known` names alone; it may not be
    the model's folder or lie in it.
    """
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(model)):
        raise ModelFolderError(f"{out} lies in the model folder {model}; wanted another place to write")
    if not os.path.lexists(out):
        return
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if not out.is_dir() or (names and marker not in names):
        raise ModelFolderError(f"{out} is there and has no {marker}; it is not replaced")
    for name in names:
        if not known.fullmatch(name):
            raise ModelFolderError(f"{out} holds {name}, which would be lost; move it away or write elsewhere")


def save_weights(weights: dict[str, Tensor], path: Path, subwords: bytes | None = None) -> None:
    """Tensors to a safetensors file, with the hash of the subword model that they were trained with."""
    from safetensors import SafetensorError
    from safetensors.torch import save, save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    metadata = None if subwords is None else {SUBWORDS_HASH: hashlib.sha256(subwords).hexdigest()}
    try:
        if is_utf8(path):
            path.touch()
            mode = path.stat().st_mode
            save_file(tensors, path, metadata)
            path.chmod(mode)  # safetensors 0.8 writes files that their owner alone may read
        else:
            path.write_bytes(save(tensors, metadata))
    except SafetensorError as error:  # also what a full disk comes as
        raise OSError(f"{final_name(path)} could not be written: {error}") from None


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


def load_module(module: nn.Module, path: Path, **more: Tensor) -> dict[str, Tensor]:
    """The weights of a module and tensors like `more`, from a file whose header must promise just these shapes."""
    wanted = {**module.state_dict(), **more}
    found = read_header(path).shapes
    for name in sorted(wanted.keys() | found.keys()):
        if name not in wanted or found.get(name) != list(wanted[name].shape):
            shape = list(wanted[name].shape) if name in wanted else "no such tensor"
            raise ModelFolderError(f"{path} does not fit the model: {name} is {found.get(name)}; wanted {shape}")
    return load_weights(path)


@dataclass(frozen=True)
class Header:
    """What a safetensors file says of its tensors before any of them is read."""

    shapes: dict[str, list[int]]
    metadata: dict[str, str]


def read_header(path: Path) -> Header:
    """The header of a safetensors file, or a one-line error that names it."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > LARGEST_HEADER:
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(file.read(size))
        metadata = header.pop("__metadata__", None) or {}
        shapes = {name: [int(size) for size in tensor["shape"]] for name, tensor in header.items()}
        return Header(shapes, dict(metadata))
    except FileNotFoundError:
        raise ModelFolderError(f"{path} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelFolderError(f"{path} is damaged or truncated: {' '.join(str(error).split())[:200]}") from None


def unique_weights(model: Transformer) -> dict[str, Tensor]:
    """The state dict without second names of tied tensors."""
    seen: set[int] = set()
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor
    return weights


def halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, for a smaller file; a model that loads them computes in single precision again."""
    half = {name: tensor.half() for name, tensor in weights.items()}
    if large := [name for name, tensor in half.items() if not bool(tensor.isfinite().all())]:
        raise ModelFolderError(f"{large[0]} holds numbers above 65504, the largest of half precision")
    return half


def load_into(model: Transformer, weights: dict[str, Tensor], where: str) -> None:
    """Put stored weights into a model whose shape they must fit."""
    check_shapes(model, {name: list(tensor.shape) for name, tensor in weights.items()}, where)
    model.load_state_dict(weights, strict=False)


def check_shapes(model: Transformer, found: Mapping[str, list[int]], where: str) -> None:
    """Refuse tensors of other names or shapes than those of a model."""
    wanted = unique_weights(model)
    if missing := sorted(wanted.keys() - found.keys()):
        raise ModelFolderError(f"{where} lacks {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}")
    if extra := sorted(found.keys() - wanted.keys()):
        raise ModelFolderError(
            f"{where} holds {', '.join(extra[:3])}{' …' if len(extra) > 3 else ''}, which the config does not know"
        )
    for name, tensor in wanted.items():
        if found[name] != list(tensor.shape):
            raise ModelFolderError(f"{where}: {name} is {found[name]}; the config wants {list(tensor.shape)}")


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
    header, subwords = read_header(path / WEIGHTS), read_part(path / SUBWORDS)
    check_header(header, config, path)
    trained_with = header.metadata.get(SUBWORDS_HASH)  # None in folders of older versions
    if trained_with is not None and trained_with != hashlib.sha256(subwords).hexdigest():
        raise ModelFolderError(f"{path / SUBWORDS} is not the subword model that {WEIGHTS} beside it was trained with")
    model = Transformer(config.model)
    load_into(model, load_weights(path / WEIGHTS), str(path / WEIGHTS))
    return model.eval(), config, subwords


class WithoutDrawing(TorchFunctionMode):
    """Leaves out drawing normal numbers, for which PyTorch imports its compiler (seconds) where tensors are "meta"."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (nn.init.normal_, Tensor.normal_):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def check_header(header: Header, config: Config, path: Path) -> None:
    """Refuse a config whose model is not the one of the weights, before memory is taken for either."""
    layers = config.model.encoder_layers + config.model.decoder_layers
    if layers > len(header.shapes):
        held = f"{path / WEIGHTS} holds {len(header.shapes)} tensors"
        raise ModelFolderError(f"{path / CONFIG} wants {layers} layers, and {held}")
    try:
        with torch.device("meta"), WithoutDrawing():  # shapes without memory
            model = Transformer(config.model)
    except (ValueError, RuntimeError) as error:  # an attention kind that there is not, a size beyond all memory
        raise ModelFolderError(f"{path / CONFIG}: {' '.join(str(error).split())}") from None
    check_shapes(model, header.shapes, str(path / WEIGHTS))
