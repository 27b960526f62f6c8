"""Checkpoints: model folders that also hold the optimiser and the position in the data, written whole or not at all."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from rela.config import Config, from_dict, read_yaml, save_config, to_dict
from rela.errors import RunFailed
from rela.files import checksum, read_json, read_part, remove_folder, remove_leftovers, replacing_folder, write_text
from rela.model.folder import CONFIG, SUBWORDS, WEIGHTS, ModelFolderError, load_weights, save_weights

OPTIMISER, PROGRESS, FINISHED = "optimiser.safetensors", "progress.json", "finished.json"
OPTIMISER_PARTS = "optimiser"
"""A folder instead of the file OPTIMISER, where each process has written its part: see rela.training.sharding."""
CHECKSUMS = "checksums"
"""The entry of the progress file with the SHA-256 of each file beside it."""
TYPES: dict[str, Any] = {
    "step": int,
    "position": (dict, NoneType),
    "best_loss": (int, float, NoneType),
    "best_bleu": (int, float, NoneType),
    "bad_validations": int,
    "batches": int,
    "data": list,
    "fingerprints": (dict, NoneType),  # None: older versions did not write them
    CHECKSUMS: (dict, NoneType),
}
REQUIRED = TYPES.keys() - {"fingerprints", "best_bleu", CHECKSUMS}
OF_TRAINING = ("target_sparsity", "query_key_gain", "dropout", "attention_dropout", "max_length")
"""Settings of a model that change nothing of what finished weights compute."""
OPTIMISERS = 2
"""Checkpoints that keep their optimiser: when the newest is damaged, a run goes on from the one before."""


class CheckpointError(RunFailed):
    """A checkpoint that could not be written or read, or is of another run."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint whose files are not what was written."""


class Checkpoints:
    """The numbered checkpoints of one run, newest last; the newest two keep their optimisers."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory, self.keep = directory, keep

    def paths(self) -> list[Path]:
        """Whole checkpoints in order of their steps."""
        found = [path for path in self.directory.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
        return sorted((path for path in found if (path / PROGRESS).is_file()), key=step_of)

    def resumable(self) -> list[Path]:
        """Checkpoints that a run can go on from, newest first."""
        kept = (path for path in reversed(self.paths()))
        return [path for path in kept if (path / OPTIMISER).is_file() or (path / OPTIMISER_PARTS).is_dir()]

    def latest(self) -> Path | None:
        """The newest checkpoint a run can go on from."""
        return next(iter(self.resumable()), None)

    def set_aside(self, path: Path) -> Path:
        """Give a damaged checkpoint a name under which no run looks for one."""
        aside = path.with_name(f"damaged-{path.name}")
        number = 1
        while aside.exists():
            number += 1
            aside = path.with_name(f"damaged-{path.name}-{number}")
        return path.rename(aside)

    def save(
        self,
        progress: dict[str, Any],
        config: Config,
        weights: dict[str, Tensor],
        optimiser: dict[str, Tensor] | Path,
        subwords: bytes,
    ) -> Path:
        """Write a checkpoint; when this raises, those before are untouched and nothing half-written is left.

        `optimiser` are tensors, or a folder of parts that is moved into the checkpoint.
        """
        path = self.directory / f"step-{progress['step']:07d}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.directory)
            with replacing_folder(path) as fresh:
                save_weights(weights, fresh / WEIGHTS, subwords)
                if isinstance(optimiser, Path):
                    optimiser.rename(fresh / OPTIMISER_PARTS)
                else:
                    save_weights(optimiser, fresh / OPTIMISER)
                save_config(config, fresh / CONFIG)
                (fresh / SUBWORDS).write_bytes(subwords)
                written = sorted(file for file in fresh.rglob("*") if file.is_file())
                checksums = {file.relative_to(fresh).as_posix(): checksum(file) for file in written}
                (fresh / PROGRESS).write_text(json.dumps({**progress, CHECKSUMS: checksums}), encoding="utf-8")
        except Exception as error:  # safetensors wraps a full disk in an error type of its own
            older = self.latest()
            left = f"the last whole one is {older.name}" if older else "there is none before it"
            raise CheckpointError(f"checkpoint {path.name} could not be written ({error}); {left}") from None
        self.prune()
        return path

    def prune(self) -> None:
        """Drop all but the newest `keep`, and the optimisers of all but the newest two, which always stay."""
        paths = self.paths()
        kept = max(self.keep, OPTIMISERS)
        for path in paths[:-kept]:
            remove_folder(path)
        for path in paths[-kept:-OPTIMISERS]:
            (path / OPTIMISER).unlink(missing_ok=True)
            shutil.rmtree(path / OPTIMISER_PARTS, ignore_errors=True)

    @staticmethod
    def load(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor] | Path]:
        """(progress, weights, optimiser) of a checkpoint; the optimiser as tensors, or as a folder of parts."""
        try:
            progress = read_json(path / PROGRESS)
        except (OSError, ValueError) as error:
            raise DamagedCheckpoint(f"{path / PROGRESS} is damaged: {error}") from None
        if not isinstance(progress, dict) or not progress.keys() >= REQUIRED:
            raise DamagedCheckpoint(f"{path / PROGRESS} is damaged; wanted {', '.join(sorted(REQUIRED))} in it")
        if wrong := [name for name, right in TYPES.items() if not isinstance(progress.get(name), right)]:
            raise DamagedCheckpoint(f"{path / PROGRESS} is damaged: {wrong[0]} is {str(progress.get(wrong[0]))[:40]}")
        for name, written in (progress.pop(CHECKSUMS, None) or {}).items():
            if not (path / name).is_file() or checksum(path / name) != written:
                raise DamagedCheckpoint(f"{path / name} is damaged or truncated: it is not what was written")
        parts = path / OPTIMISER_PARTS
        return progress, load_weights(path / WEIGHTS), parts if parts.is_dir() else load_weights(path / OPTIMISER)


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(path.name.removeprefix("step-"))


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an Adam optimiser as named tensors."""
    state = optimiser.state_dict()["state"]
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], stepped: bool = True) -> None:
    """Put stored tensors back as the state of an optimiser over the same parameters; `stepped` if there must be one."""
    if not tensors and not stepped:
        return
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, field = name.partition(".")
        if not index.isdecimal():
            raise DamagedCheckpoint(f"the optimiser's state holds {name!r}; wanted names such as 0.exp_avg")
        state.setdefault(int(index), {})[field] = tensor
    whole = optimiser.state_dict()
    count = sum(len(group["params"]) for group in whole["param_groups"])
    if set(state) != set(range(count)):
        raise DamagedCheckpoint(f"the optimiser's state has {len(state)} parameters; the model has {count}")
    optimiser.load_state_dict({"state": state, "param_groups": whole["param_groups"]})


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several model folders, summed in float64."""
    if not folders:
        raise ModelFolderError("no model folders to average")
    vocabularies = {read_part(folder / SUBWORDS) for folder in folders}
    if len(vocabularies) > 1:
        found = f"{len(vocabularies)} different {SUBWORDS} in the folders"
        raise ModelFolderError(f"{found}; wanted checkpoints of one run")
    check_same_function(folders)
    total = {name: tensor.double() for name, tensor in load_weights(folders[0] / WEIGHTS).items()}
    for folder in folders[1:]:
        weights = load_weights(folder / WEIGHTS)
        if weights.keys() != total.keys():
            raise ModelFolderError(f"{folder} holds other tensors than {folders[0]}; wanted checkpoints of one run")
        for name, tensor in weights.items():
            if tensor.shape != total[name].shape:
                wanted = list(total[name].shape)
                raise ModelFolderError(f"{folder}: {name} is {list(tensor.shape)}; {folders[0]} has {wanted}")
            total[name] += tensor
    return {name: (tensor / len(folders)).float() for name, tensor in total.items()}


def check_same_function(folders: Sequence[Path]) -> None:
    """Refuse folders whose weights may have the same shapes but mean something else: other heads, kinds, languages."""
    first, *others = (function_of(folder) for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        for key, value in first.items():
            if other[key] != value:
                found = f"{folder} has {key} = {other[key]!r}, and {folders[0]} has {value!r}"
                raise ModelFolderError(f"{found}; wanted checkpoints of one run")


def function_of(folder: Path) -> dict[str, Any]:
    """The settings that decide what the weights of a model folder compute, by their names in its config."""
    try:
        config = to_dict(from_dict(Config, read_yaml(folder / CONFIG), str(folder / CONFIG)))
    except FileNotFoundError:
        raise ModelFolderError(f"{folder} has no {CONFIG}") from None
    shape = {f"model.{key}": value for key, value in config["model"].items() if key not in OF_TRAINING}
    return shape | {f"data.{side}": config["data"][side] for side in ("source_language", "target_language")}


def mark_average(path: Path, step: int, count: int) -> None:
    """Note in a finished model folder which checkpoints it is the mean of; replacing the folder removes the note."""
    write_text(path / FINISHED, json.dumps({"step": step, "average_last": count}))


def is_average_of(path: Path, step: int, count: int) -> bool:
    """Whether a finished model folder is the mean of `count` checkpoints up to a step."""
    try:
        note = read_json(path / FINISHED)
    except (OSError, ValueError):
        return False
    return bool(note == {"step": step, "average_last": count})
