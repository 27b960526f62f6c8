"""The training loop: packed batches in, checkpoints and a finished model folder out."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rela.config import Config, save_config, to_dict
from rela.data.batching import Batch, BatchStream, PreparedCorpus, one_pass
from rela.data.subwords import Subwords
from rela.decoding.translate import Translator
from rela.evaluation.scores import bleu
from rela.model.folder import CONFIG, SUBWORDS, load_into, save_folder, unique_weights
from rela.model.transformer import Transformer
from rela.training.checkpoint import CheckpointError, Checkpoints, average_weights, optimiser_tensors, restore_optimiser
from rela.training.journal import Journal
from rela.training.loss import Objective
from rela.training.processes import Processes, join_processes
from rela.training.schedule import inverse_square_root
from rela.training.watchdog import TrainingFailed, Watchdog

# Settings a resumed run may change; all others decide what the model becomes.
FREE = {"directory", "steps", "log_every", "validate_every", "bleu_every", "save_every", "keep_last", "average_last",
        "patience", "tensorboard", "device", "compile"}  # fmt: skip


def train(config: Config, quiet: bool = False) -> Path:
    """Train the model of `config` on its prepared data, going on where an earlier run left off; the model folder."""
    with join_processes(config.train.device) as processes:
        return Trainer(config, processes, quiet).run()


class Trainer:
    """One run: its model, optimiser and place in the data."""

    def __init__(self, config: Config, processes: Processes, quiet: bool = False) -> None:
        self.processes, self.device = processes, processes.device
        self.corpus = PreparedCorpus.open(config.data.directory, "train")
        self.valid = PreparedCorpus.open(config.data.directory, "valid") if config.data.valid else None
        self.subwords = Subwords.load(Path(config.data.directory) / "subwords.model")
        self.config = config = fit_vocabulary(config, self.subwords.size)
        self.settings = config.train
        self.directory = Path(config.train.directory)
        self.quiet = quiet or not processes.first
        torch.manual_seed(config.train.seed)
        self.model = Transformer(config.model).to(self.device)
        self.objective = Objective(self.model, config.train.label_smoothing, config.train.sparsity_weight)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(self.settings.beta1, self.settings.beta2), eps=self.settings.epsilon,
            weight_decay=self.settings.weight_decay, fused=self.device.type == "cuda",
        )  # fmt: skip
        self.checkpoints = Checkpoints(self.directory / "checkpoints", self.settings.keep_last)
        self.watchdog = Watchdog(self.subwords.size, patience=max(2 * self.settings.warmup, 1000))
        self.step, self.best_loss, self.bad_validations = 0, math.inf, 0
        self.position: dict[str, int] | None = None
        self.asked_to_stop = False

    @property
    def batch_tokens(self) -> int:
        """Target tokens of one batch of one process: a step's, over the batches it is split into."""
        return max(self.settings.tokens // (self.settings.accumulate * self.processes.world), 1)

    @property
    def static(self) -> bool:
        """Batches of one constant shape where they are compiled for, or run on a GPU."""
        return self.device.type == "cuda"

    def run(self) -> Path:
        """Train to the end, then write the average of the last checkpoints as the finished model."""
        self.resume()
        finished = self.directory / "model"
        if self.step >= self.settings.steps and finished.is_dir():
            return finished
        if self.processes.first:
            self.directory.mkdir(parents=True, exist_ok=True)
            save_config(self.config, self.directory / "config.yaml")
        journal = (
            Journal(self.directory, self.settings.steps, self.settings.tensorboard, self.quiet)
            if self.processes.first
            else None
        )
        stream = BatchStream(
            self.corpus, self.batch_tokens, self.settings.seed, rank=self.processes.rank, world=self.processes.world,
            static=self.static, start=self.position, pin=self.device.type == "cuda",
        )  # fmt: skip
        try:
            with stream, self.stop_signals():
                self.loop(stream, journal)
            if not self.asked_to_stop:
                self.write_finished(finished)
        finally:
            if journal is not None:
                journal.close()
        if self.asked_to_stop:
            raise KeyboardInterrupt
        return finished

    def loop(self, stream: BatchStream, journal: Journal | None) -> None:
        """Steps until the configured number, an early stop, or a request to stop."""
        step_objective = self.prepared_objective()
        self.model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, nll over all processes' tokens
        tokens_since, since = 0, time.monotonic()
        while self.step < self.settings.steps:
            batches = [next(stream) for _ in range(self.settings.accumulate)]
            tokens = int(self.processes.total(sum(batch.target_tokens for batch in batches)))
            if self.step < self.watchdog.patience:
                for batch in batches:
                    self.watchdog.count(batch.target_out)
            sums += self.optimise(step_objective, batches, tokens)
            tokens_since += tokens
            self.step += 1
            self.position = stream.position
            if self.step % self.settings.log_every == 0 or self.step == self.settings.steps:
                loss, nll = (self.processes.total(value) / tokens_since for value in sums.tolist())
                speed = tokens_since / (time.monotonic() - since)
                if journal is not None:
                    left = (
                        (self.settings.steps - self.step) * (tokens_since / self.settings.log_every) / max(speed, 1e-9)
                    )
                    journal.train(self.step, loss, nll, self.learning_rate(), speed, left, peak_memory(self.device))
                self.watchdog.check(self.step, nll)
                sums.zero_()
                tokens_since, since = 0, time.monotonic()
            paused = time.monotonic()
            stop = self.between_steps(journal)
            since += time.monotonic() - paused  # validation and saving are not training speed
            if stop:
                return

    def optimise(self, objective: nn.Module, batches: list[Batch], tokens: int) -> Tensor:
        """One optimiser step over `batches`, whose gradient is the mean over all processes' `tokens`; [loss, nll] sums."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for index, batch in enumerate(batches):
            # Dropout is a function of the seed, the step and the batch's number in it, whichever process has it.
            number = index * self.processes.world + self.processes.rank
            torch.manual_seed(mix(self.settings.seed, self.step, number))
            last = index == len(batches) - 1
            wait = isinstance(objective, DistributedDataParallel) and not last
            with objective.no_sync() if wait else contextlib.nullcontext():  # type: ignore[operator]
                with self.autocast():
                    loss, nll = objective(*objective_inputs(batch.to(self.device)))
                # DistributedDataParallel means over processes; the mean wanted is over tokens.
                (loss * (self.processes.world / tokens)).backward()
            sums += torch.stack([loss.detach(), nll.detach()])
        if self.settings.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return sums

    def learning_rate(self) -> float:
        return inverse_square_root(
            self.step + 1, self.config.model.width, self.settings.warmup, self.settings.learning_rate
        )

    def between_steps(self, journal: Journal | None) -> bool:
        """Validate, save, and say whether to stop."""
        settings = self.settings
        stop = False
        last = self.step == settings.steps
        if self.valid is not None and settings.validate_every and (self.step % settings.validate_every == 0 or last):
            stop = self.validate(journal)
        if self.valid is not None and settings.bleu_every and self.step % settings.bleu_every == 0:
            self.validate_bleu(journal)
        self.asked_to_stop = self.processes.any(self.asked_to_stop)
        if self.step % settings.save_every == 0 or last or stop or self.asked_to_stop:
            self.save()
        return stop or self.asked_to_stop

    @torch.no_grad()
    def validate(self, journal: Journal | None) -> bool:
        """Loss on the validation set; keeps the best model, and says whether patience has run out."""
        assert self.valid is not None
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        tokens = 0
        budget = min(self.batch_tokens, 8192)
        for batch in one_pass(self.valid, budget, rank=self.processes.rank, world=self.processes.world):
            with self.autocast():
                # forward, not the call: that may be compiled, for batches of one size.
                sums += torch.stack(self.objective.forward(*objective_inputs(batch.to(self.device)))).double()
            tokens += batch.target_tokens
        self.model.train()
        total = self.processes.total(tokens)
        if not total:
            raise TrainingFailed(f"no validation pair fits a batch of {budget} tokens")
        loss, nll = (self.processes.total(value) / total for value in sums.tolist())
        better = loss < self.best_loss
        self.best_loss, self.bad_validations = (loss, 0) if better else (self.best_loss, self.bad_validations + 1)
        if better and self.processes.first:
            save_folder(self.directory / "best", self.config, unique_weights(self.model), self.subwords.model)
        if journal is not None:
            journal.write("valid", self.step, loss=loss, nll=nll, perplexity=math.exp(min(nll, 50.0)))
            journal.say(f"step {self.step}: validation loss {loss:.3f}, perplexity {math.exp(min(nll, 50.0)):.2f}"
                        + (" (best so far)" if better else ""))  # fmt: skip
        return bool(self.settings.patience) and self.bad_validations >= self.settings.patience

    def validate_bleu(self, journal: Journal | None) -> None:
        """Greedy BLEU on the validation set, as sacreBLEU scores the raw text."""
        if not self.processes.first:
            return
        assert self.config.data.valid is not None
        from rela.data.corpus import read_lines

        root = Path(self.config.data.root)
        sources = list(read_lines(root / self.config.data.valid.source))
        references = list(read_lines(root / self.config.data.valid.target))
        translator = Translator(self.model, self.subwords, self.config, str(self.device))
        score = bleu(translator.translate(sources, beam=1), references)
        self.model.train()
        if journal is not None:
            journal.write("bleu", self.step, bleu=score.value, signature=score.signature)
            journal.say(f"step {self.step}: validation BLEU {score.value:.2f} (greedy)")

    def save(self) -> None:
        """Write a checkpoint from the first process; the others wait."""
        failure = ""
        if self.processes.first:
            tensors = {**optimiser_tensors(self.optimiser), "watchdog.counts": self.watchdog.counts}
            progress = {
                "step": self.step, "position": self.position, "best_loss": None if math.isinf(self.best_loss) else self.best_loss,
                "bad_validations": self.bad_validations, "batch_tokens": self.batch_tokens,
            }  # fmt: skip
            try:
                self.checkpoints.save(progress, self.config, unique_weights(self.model), tensors, self.subwords.model)
            except CheckpointError as error:
                failure = str(error)
        if self.processes.any(bool(failure)):
            raise CheckpointError(failure or "the first process could not write its checkpoint")

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one and it belongs to the same experiment."""
        path = self.checkpoints.latest()
        if path is None:
            return
        progress, weights, tensors = self.checkpoints.load(path)
        check_same_experiment(path / CONFIG, self.config)
        if (path / SUBWORDS).read_bytes() != self.subwords.model:
            raise CheckpointError(
                f"{path} was trained with another vocabulary than that of {self.config.data.directory}"
            )
        if progress["batch_tokens"] != self.batch_tokens:
            raise CheckpointError(
                f"{path} was trained with {progress['batch_tokens']} tokens a batch and process, and now it is "
                f"{self.batch_tokens}; keep train.accumulate times the number of processes as it was"
            )
        load_into(self.model, weights, str(path))
        self.watchdog.counts = tensors.pop("watchdog.counts")
        restore_optimiser(self.optimiser, tensors)
        self.step, self.position = progress["step"], progress["position"]
        self.best_loss = math.inf if progress["best_loss"] is None else progress["best_loss"]
        self.bad_validations = progress["bad_validations"]

    def write_finished(self, path: Path) -> None:
        """The finished model: the mean of the last checkpoints' weights."""
        if self.processes.first:
            last = self.checkpoints.paths()[-self.settings.average_last :]
            save_folder(path, self.config, average_weights(last), self.subwords.model)
        self.processes.wait()

    def prepared_objective(self) -> nn.Module:
        """The objective compiled and distributed as the settings and processes want."""
        objective: nn.Module = self.objective
        if self.settings.compile == "on" or (self.settings.compile == "auto" and self.device.type == "cuda"):
            objective.compile(dynamic=False)
        if self.processes.world > 1:
            ids = [self.device.index] if self.device.type == "cuda" else None
            objective = DistributedDataParallel(objective, device_ids=ids)
        return objective

    def autocast(self) -> contextlib.AbstractContextManager:
        wanted = self.settings.precision
        half = wanted == "bf16" or (wanted == "auto" and self.device.type == "cuda" and torch.cuda.is_bf16_supported())
        return torch.autocast(self.device.type, torch.bfloat16) if half else contextlib.nullcontext()

    @contextlib.contextmanager
    def stop_signals(self) -> Iterator[None]:
        """On SIGINT or SIGTERM finish the step, save, and stop; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: Any) -> None:
            if self.asked_to_stop:
                raise KeyboardInterrupt
            self.asked_to_stop = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def objective_inputs(batch: Batch) -> tuple:
    """A batch in the order of Objective.forward."""
    return (
        batch.source, batch.source_positions, batch.cu_source, batch.max_source,
        batch.target_in, batch.target_positions, batch.cu_target, batch.max_target, batch.target_out,
    )  # fmt: skip


def fit_vocabulary(config: Config, size: int) -> Config:
    """The config with the prepared vocabulary's size in its model."""
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary_size=size))


def peak_memory(device: torch.device) -> float | None:
    """GiB of GPU memory this process has needed at most, or None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None


def mix(*numbers: int) -> int:
    """One seed of several numbers, different whenever any of them is."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (2**63)
    return seed


def check_same_experiment(path: Path, config: Config) -> None:
    """Refuse to go on with a run of another experiment: same data and model, same settings that shape the result."""
    import yaml

    before, now = yaml.safe_load(path.read_text(encoding="utf-8")), to_dict(config)
    for section in ("model", "train"):
        for key, value in now[section].items():
            if key not in FREE and before.get(section, {}).get(key) != value:
                was = before.get(section, {}).get(key)
                raise CheckpointError(
                    f"{path.parent} was trained with {section}.{key} = {was!r}, and now it is {value!r}; "
                    "choose another train.directory, or delete that one"
                )
