"""Going on with a run: what a checkpoint keeps of it, what a resumed run may change, and putting it all back."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rela.config import Config, from_dict, read_yaml, to_dict
from rela.files import read_part
from rela.model.folder import CONFIG, SUBWORDS, ModelFolderError, load_into, unique_weights
from rela.model.transformer import Transformer
from rela.training.checkpoint import (
    CheckpointError,
    Checkpoints,
    DamagedCheckpoint,
    optimiser_tensors,
    restore_optimiser,
)
from rela.training.precision import Precision
from rela.training.sharding import like, read_parts
from rela.training.watchdog import Watchdog

# Settings a resumed run may change; all others decide what the model becomes.
FREE = {"directory", "steps", "accumulate", "patience", "tensorboard", "align", "device", "compile", "sharding"}
FREE |= {"log_every", "validate_every", "bleu_every", "save_every", "keep_last", "average_last"}
WORD_COUNTS = "watchdog.counts"
LOSS_SCALE = "precision.scale"
ADVICE = "choose another train.directory, or delete that one"


@dataclass
class RunState:
    """How far a run has come, besides its weights and its optimiser."""

    step: int = 0
    """Optimiser steps taken."""
    position: dict[str, int] | None = None
    """Where the batch stream goes on; None at its start."""
    best_loss: float = math.inf
    """The lowest validation loss."""
    best_bleu: float = -math.inf
    """The highest validation BLEU."""
    bad_validations: int = 0
    """Validations since then."""


@dataclass(frozen=True)
class Experiment:
    """What a run must have in common with the checkpoint that it goes on from."""

    config: Config
    subwords: bytes
    data: list[int]
    """Pairs, source tokens and target tokens of the training text."""
    fingerprints: dict[str, str | None]
    """A hash of the ids of the training text and of each validation set, by split."""
    batches: int
    """Batches in one optimiser step, over all processes."""


@dataclass(frozen=True)
class Learner:
    """What training changes: the model, its optimiser, the word counts of the watchdog, and the scale of the loss."""

    model: Transformer
    optimiser: torch.optim.Optimizer
    watchdog: Watchdog
    precision: Precision

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps besides the weights."""
        scale = {} if self.precision.scaler is None else {LOSS_SCALE: self.precision.state()}
        return {**optimiser_tensors(self.optimiser), WORD_COUNTS: self.watchdog.counts, **scale}

    def stored_tensors(self, optimiser: dict[str, Tensor] | Path) -> dict[str, Tensor]:
        """What a checkpoint keeps besides the weights, spread over the processes as the parameters are."""
        parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        if isinstance(optimiser, Path):
            moments = {
                f"{index}.{name}": torch.zeros_like(parameter)
                for index, parameter in enumerate(parameters)
                for name in ("exp_avg", "exp_avg_sq")
            }
            steps = {f"{index}.step": torch.zeros(()) for index in range(len(parameters))}
            return read_parts(optimiser, {**moments, **steps, WORD_COUNTS: self.watchdog.counts})
        tensors = dict(optimiser)
        for name, tensor in optimiser.items():
            index, _, field = name.partition(".")
            if field.startswith("exp_avg") and int(index) < len(parameters):
                tensors[name] = like(tensor, parameters[int(index)])
        return tensors


def progress_of(state: RunState, experiment: Experiment) -> dict[str, Any]:
    """What a checkpoint's progress file says."""
    return {
        "step": state.step,
        "position": state.position,
        "best_loss": None if math.isinf(state.best_loss) else state.best_loss,
        "best_bleu": None if math.isinf(state.best_bleu) else state.best_bleu,
        "bad_validations": state.bad_validations,
        "batches": experiment.batches,
        "data": experiment.data,
        "fingerprints": experiment.fingerprints,
    }


def resume_newest(
    checkpoints: Checkpoints, experiment: Experiment, learner: Learner
) -> tuple[RunState, dict[Path, str]]:
    """The state of the run's newest whole checkpoint, and the damaged ones that are newer, with what is wrong.

    A new run has neither. If no checkpoint is whole, what is wrong with the newest is raised.
    """
    damaged: dict[Path, str] = {}
    first: ValueError | RuntimeError | None = None
    for path in checkpoints.resumable():
        try:
            return resume(path, experiment, learner), damaged
        except (DamagedCheckpoint, ModelFolderError) as error:
            first = first or error
            damaged[path] = str(error)
    if first is not None:
        raise first
    return RunState(), {}


def resume(path: Path, experiment: Experiment, learner: Learner) -> RunState:
    """The state of the run that wrote a checkpoint; its weights, optimiser and word counts are put into `learner`."""
    progress, weights, optimiser = Checkpoints.load(path)
    check_same_run(path, progress, experiment)
    spread = unique_weights(learner.model)
    weights = {name: like(tensor, spread[name]) if name in spread else tensor for name, tensor in weights.items()}
    load_into(learner.model, weights, str(path))
    tensors = learner.stored_tensors(optimiser)
    if WORD_COUNTS not in tensors:
        raise DamagedCheckpoint(f"{path} lacks {WORD_COUNTS} in its optimiser")
    learner.watchdog.counts = tensors.pop(WORD_COUNTS)
    if learner.precision.scaler is not None:
        if LOSS_SCALE not in tensors:
            raise DamagedCheckpoint(f"{path} lacks {LOSS_SCALE} in its optimiser")
        learner.precision.restore(tensors.pop(LOSS_SCALE))
    restore_optimiser(learner.optimiser, tensors, stepped=learner.precision.scaler is None)
    loss, bleu = progress["best_loss"], progress.get("best_bleu")
    return RunState(
        step=progress["step"],
        position=progress["position"],
        best_loss=math.inf if loss is None else loss,
        best_bleu=-math.inf if bleu is None else bleu,
        bad_validations=progress["bad_validations"],
    )


def check_same_run(path: Path, progress: dict[str, Any], experiment: Experiment) -> None:
    """Refuse a checkpoint of another experiment, vocabulary, text or number of batches a step, or of more steps."""
    check_same_experiment(path / CONFIG, experiment.config, progress["step"])
    directory = experiment.config.data.directory
    if read_part(path / SUBWORDS) != experiment.subwords:
        raise CheckpointError(f"{path} was trained with another vocabulary than that of {directory}")
    if progress["data"] != experiment.data:
        raise CheckpointError(f"{path} was trained on other text than what is in {directory}")
    check_same_text(path, progress.get("fingerprints") or {}, experiment)
    if progress["batches"] != experiment.batches:
        changed = f"{progress['batches']} batches a step, and now it is {experiment.batches}"
        advice = "keep train.accumulate times the number of processes as it was"
        raise CheckpointError(f"{path} was trained with {changed}; {advice}")


def check_same_text(path: Path, before: dict[str, str | None], experiment: Experiment) -> None:
    """Refuse a checkpoint that was trained on other ids, or on the same ones in another order."""
    directory = experiment.config.data.directory
    for split, new in experiment.fingerprints.items():
        old, name = before.get(split), "text" if split == "train" else "validation text"
        if old and new and old != new:
            raise CheckpointError(f"{path} was trained with other {name} than what is in {directory}; {ADVICE}")
    if not (before.get("train") and experiment.fingerprints["train"]):
        known = "by its numbers of pairs and tokens alone: an older version wrote one of them"
        warnings.warn(f"{path} and the text of {directory} are compared {known}", stacklevel=2)


def check_same_experiment(path: Path, config: Config, step: int = 0) -> None:
    """Refuse to go on with a run of another experiment: same data and model, same settings that shape the result."""
    try:
        before, now = to_dict(from_dict(Config, read_yaml(path), str(path))), to_dict(config)
    except (ValueError, OSError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from None
    for section in ("model", "train"):
        for key, value in now[section].items():
            if key not in FREE and before[section][key] != value:
                changed = f"{section}.{key} = {before[section][key]!r}, and now it is {value!r}"
                raise CheckpointError(f"{path.parent} was trained with {changed}; {ADVICE}")
    if step > config.train.steps:
        more = f"{step} steps already, more than train.steps, {config.train.steps}"
        raise CheckpointError(f"{path.parent} has trained {more}; raise it, or choose another train.directory")
    planned, cooldown = before["train"]["steps"], config.train.cooldown
    if config.train.schedule == "cosine" and config.train.steps != planned and step > config.train.warmup:
        changed = f"train.steps = {planned}, and now it is {config.train.steps}"
        raise CheckpointError(f"{path.parent} follows a cosine towards {changed}; {ADVICE}")
    if cooldown and config.train.steps != planned and step > planned - cooldown:
        changed = f"train.steps = {planned}, and now it is {config.train.steps}"
        raise CheckpointError(f"{path.parent} has begun to cool down towards {changed}; {ADVICE}")
