"""The training loop: packed batches in, checkpoints and a finished model folder out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rela.attention.kinds import kind_of
from rela.config import Config, from_dict, read_yaml, save_config, to_dict
from rela.data.batching import Batch, BatchStream, PreparedCorpus, one_pass
from rela.data.subwords import Subwords
from rela.decoding.translate import Translator
from rela.device import has_bf16
from rela.evaluation.scores import bleu
from rela.files import write_text
from rela.model.folder import CONFIG, SUBWORDS, load_into, save_folder, unique_weights
from rela.model.transformer import Transformer
from rela.training.checkpoint import CheckpointError, Checkpoints, average_weights, optimiser_tensors, restore_optimiser
from rela.training.graphed import GraphedStep
from rela.training.journal import Journal
from rela.training.loss import Objective
from rela.training.processes import Processes, alone_in, join_processes
from rela.training.schedule import centring_share, cooled, inverse_square_root
from rela.training.watchdog import TrainingFailed, Watchdog

FINISHED = "finished.json"
# Settings a resumed run may change; all others decide what the model becomes.
FREE = {"directory", "steps", "accumulate", "log_every", "validate_every", "bleu_every", "save_every", "keep_last", "average_last",
        "patience", "tensorboard", "device", "compile"}  # fmt: skip


def train(config: Config, quiet: bool = False) -> Path:
    """Train the model of `config` on its prepared data, going on where an earlier run left off; the model folder."""
    with join_processes(config.train.device) as processes:
        trainer = Trainer(config, processes, quiet)
        with alone_in(trainer.directory) if processes.first else contextlib.nullcontext():
            return trainer.run()


class Trainer:
    """One run: its model, optimiser and place in the data."""

    def __init__(self, config: Config, processes: Processes, quiet: bool = False) -> None:
        self.processes, self.device = processes, processes.device
        self.corpus = PreparedCorpus.open(config.data.directory, "train")
        self.valid = PreparedCorpus.open(config.data.directory, "valid") if config.data.valid else None
        self.subwords = Subwords.load(Path(config.data.directory) / "subwords.model")
        check_prepared(config, self.subwords.size, [self.corpus] if self.valid is None else [self.corpus, self.valid])
        self.config = config = fit_vocabulary(config, self.subwords.size)
        self.settings = config.train
        self.directory = Path(config.train.directory)
        self.quiet = quiet or not processes.first
        torch.manual_seed(config.train.seed)
        self.model = Transformer(config.model).to(self.device)
        self.objective = Objective(self.model, config.train.label_smoothing, config.train.sparsity_weight)
        self.share = torch.zeros((), device=self.device) if self.settings.centring else None
        self.model.centre_keys(self.share)
        on_gpu = self.device.type == "cuda"
        # On a GPU the rate is a tensor, so that a recorded step reads the rate of the step it is replayed for.
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=torch.zeros((), device=self.device) if on_gpu else 0.0, fused=on_gpu,
            betas=(self.settings.beta1, self.settings.beta2), eps=self.settings.epsilon,
            weight_decay=self.settings.weight_decay, capturable=on_gpu,
        )  # fmt: skip
        self.checkpoints = Checkpoints(self.directory / "checkpoints", self.settings.keep_last)
        self.watchdog = Watchdog(self.subwords.size, patience=max(2 * self.settings.warmup, 1000))
        self.step, self.best_loss, self.bad_validations = 0, math.inf, 0
        self.position: dict[str, int] | None = None
        self.asked_to_stop = False

    @property
    def batch_tokens(self) -> int:
        """Target tokens of one batch of one process: a step's, over the batches it is split into."""
        return max(self.settings.tokens // self.batches, 1)

    @property
    def batches(self) -> int:
        """Batches in one optimiser step, over all processes."""
        return self.settings.accumulate * self.processes.world

    @property
    def static(self) -> bool:
        """Batches of one constant shape where they are compiled for, or run on a GPU."""
        return self.compiled or self.device.type == "cuda"

    @property
    def compiled(self) -> bool:
        return self.settings.compile == "on" or (self.settings.compile == "auto" and self.device.type == "cuda")

    @property
    def graphs(self) -> bool:
        """Whether a step is recorded and replayed: on one GPU, where it is one batch."""
        return self.compiled and self.device.type == "cuda" and self.batches == 1

    def run(self) -> Path:
        """Train to the end, then write the average of the last checkpoints as the finished model."""
        self.resume()
        finished = self.directory / "model"
        over = self.step >= self.settings.steps or self.out_of_patience()
        if self.step > self.settings.steps and self.processes.first:
            warnings.warn(f"{self.directory} has trained {self.step} steps already, more than train.steps, "
                          f"{self.settings.steps}; its model is the one of all of them", stacklevel=2)  # fmt: skip
        if over and is_average_of(finished, self.step, self.settings.average_last):
            return finished
        if self.processes.first:
            if self.corpus.longest_target >= self.batch_tokens:
                warnings.warn(
                    f"training pairs of more than {self.batch_tokens - 1} target subwords are left out: a batch has "
                    f"{self.batch_tokens} tokens (train.tokens over train.accumulate and processes)",
                    stacklevel=2,
                )
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
                if not over:
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
        graphed = None
        if self.graphs:
            graphed = GraphedStep(lambda batch, factor: self.take_step(step_objective, batch, factor), self.device)
        self.model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, nll over all processes' tokens
        tokens_since, since = 0, time.monotonic()
        while self.step < self.settings.steps:
            batches = [next(stream) for _ in range(self.settings.accumulate)]
            tokens = int(self.processes.total(sum(batch.target_tokens for batch in batches)))
            if self.step < self.watchdog.patience:
                for batch in batches:
                    self.watchdog.count(batch.target_out)
            self.set_centring()
            if graphed is None:
                sums += self.optimise(step_objective, batches, tokens)
            else:
                torch.manual_seed(mix(self.settings.seed, self.step, 0))
                self.set_rate()
                sums += graphed(batches[0], 1.0 / tokens)
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
                    rate = float(self.optimiser.param_groups[0]["lr"])
                    journal.train(self.step, loss, nll, rate, speed, left, peak_memory(self.device))
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
        self.set_rate()
        self.apply_gradients()
        return sums

    def take_step(self, objective: nn.Module, batch: Batch, factor: Tensor) -> Tensor:
        """`optimise` for a step that is one batch, in a form that can be recorded: what changes lies on the device."""
        with self.autocast():
            loss, nll = objective(*objective_inputs(batch))
        (loss * factor).backward()
        self.apply_gradients()
        return torch.stack([loss.detach(), nll.detach()])

    def apply_gradients(self) -> None:
        """Clip, let the optimiser step, and forget the gradients."""
        if self.settings.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def set_rate(self) -> None:
        """Give the optimiser the rate of the step that comes next."""
        rate = self.learning_rate()
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def set_centring(self) -> None:
        """Give attention the share of the mean key that the step which comes next does without."""
        if self.share is None:
            return
        share = centring_share(self.step + 1, self.settings.centring)
        self.share.fill_(share)
        # A compiled step goes on taking nothing off, which costs less than compiling another one.
        if not share and not self.compiled:
            self.model.centre_keys(None)

    def learning_rate(self) -> float:
        """The rate of the step that comes next."""
        settings, step = self.settings, self.step + 1
        rate = inverse_square_root(step, self.config.model.width, settings.warmup, settings.learning_rate)
        return rate * cooled(step, settings.steps, settings.cooldown)

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
        self.set_centring()  # as in the next step: keys are plain here as soon as the last centred step is over
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
        # While keys are centred this is not the loss of the model that is saved, whose keys are plain.
        counts = self.step >= self.settings.centring
        better = counts and loss < self.best_loss
        self.best_loss, self.bad_validations = (loss, 0) if better else (self.best_loss, self.bad_validations + counts)
        if better and self.processes.first:
            save_folder(self.directory / "best", self.config, unique_weights(self.model), self.subwords.model)
        if journal is not None:
            journal.write("valid", self.step, loss=loss, nll=nll, perplexity=math.exp(min(nll, 50.0)))
            journal.say(f"step {self.step}: validation loss {loss:.3f}, perplexity {math.exp(min(nll, 50.0)):.2f}"
                        + (" (best so far)" if better else ""))  # fmt: skip
        return self.out_of_patience()

    def out_of_patience(self) -> bool:
        return bool(self.settings.patience) and self.bad_validations >= self.settings.patience

    def validate_bleu(self, journal: Journal | None) -> None:
        """Greedy BLEU on the validation set, as sacreBLEU scores the raw text."""
        if not self.processes.first:
            return
        assert self.config.data.valid is not None
        from rela.data.corpus import read_pairs

        root, valid = Path(self.config.data.root), self.config.data.valid
        pairs = read_pairs(root / valid.source, root / valid.target, self.config.data.on_bad_line)
        sources, references = map(list, zip(*pairs, strict=True))
        translator = Translator(self.model, self.subwords, self.config, str(self.device))
        self.model.centre_keys(None)  # what is saved, and what translates, has plain keys
        # Whatever the finished model is to be used with: here it is on the device it is trained on.
        score = bleu(translator.translate(sources, beam=1, engine="auto", precision="auto"), references)
        self.model.centre_keys(self.share)
        self.model.train()
        if journal is not None:
            journal.write("bleu", self.step, bleu=score.value, signature=score.signature)
            journal.say(f"step {self.step}: validation BLEU {score.value:.2f} (greedy)")

    def save(self) -> None:
        """Write a checkpoint from the first process; the others wait. Weights that are not numbers are not worth one."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            self.watchdog.check(self.step, math.nan)
        failure = ""
        if self.processes.first:
            tensors = {**optimiser_tensors(self.optimiser), "watchdog.counts": self.watchdog.counts}
            progress = {
                "step": self.step, "position": self.position, "best_loss": None if math.isinf(self.best_loss) else self.best_loss,
                "bad_validations": self.bad_validations, "batches": self.batches, "data": self.data_facts(),
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
        check_same_experiment(path / CONFIG, self.config, progress["step"])
        if (path / SUBWORDS).read_bytes() != self.subwords.model:
            raise CheckpointError(
                f"{path} was trained with another vocabulary than that of {self.config.data.directory}"
            )
        if progress["data"] != self.data_facts():
            raise CheckpointError(f"{path} was trained on other text than what is in {self.config.data.directory}")
        if progress["batches"] != self.batches:
            raise CheckpointError(
                f"{path} was trained with {progress['batches']} batches a step, and now it is {self.batches}; keep "
                "train.accumulate times the number of processes as it was"
            )
        load_into(self.model, weights, str(path))
        if "watchdog.counts" not in tensors:
            raise CheckpointError(f"{path} lacks watchdog.counts in its optimiser")
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
            mark_average(path, self.step, self.settings.average_last)
        self.processes.wait()

    def data_facts(self) -> list[int]:
        """What tells a resumed run that it goes on with the same text."""
        return [len(self.corpus), self.corpus.source_tokens, self.corpus.target_tokens]

    def prepared_objective(self) -> nn.Module:
        """The objective compiled and distributed as the settings and processes want."""
        objective: nn.Module = self.objective
        if self.compiled:
            objective.compile(dynamic=False)
        if self.processes.world > 1:
            ids = [self.device.index] if self.device.type == "cuda" else None
            objective = DistributedDataParallel(objective, device_ids=ids)
        return objective

    def autocast(self) -> contextlib.AbstractContextManager:
        wanted = self.settings.precision
        half = wanted == "bf16" or (wanted == "auto" and has_bf16(self.device))
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
    return *batch.inputs, batch.target_out


def check_prepared(config: Config, size: int, corpora: list[PreparedCorpus]) -> None:
    """Refuse a prepared corpus that the configuration does not fit, before any time is spent."""
    if config.data.vocabulary_size != size:
        raise ValueError(
            f"data.vocabulary_size is {config.data.vocabulary_size}, and {config.data.directory} was prepared with {size}"
        )
    longest = 1 + max(max(corpus.longest_source, corpus.longest_target) for corpus in corpora)
    if longest > config.model.max_length:
        raise ValueError(
            f"model.max_length is {config.model.max_length}; wanted at least {longest}, the longest sentence"
        )
    if config.data.valid is None and (config.train.patience or config.train.bleu_every):
        raise ValueError("train.patience and train.bleu_every need text to validate with; wanted data.valid")
    if config.train.patience and not config.train.validate_every:
        raise ValueError("train.patience counts validations by loss; wanted train.validate_every above 0")
    kinds = config.model.attention_kinds.values()
    for name in ("threshold", "target_sparsity"):
        if getattr(config.model, name) and all(kind_of(kind).is_distribution for kind in kinds):
            raise ValueError(f"model.{name} is {getattr(config.model, name)}, and no attention here has such a thing: "
                             f"{', '.join(kinds)}")  # fmt: skip
    if config.train.bleu_every and config.data.valid is not None:
        for name in (config.data.valid.source, config.data.valid.target):
            if not (Path(config.data.root) / name).is_file():
                raise ValueError(f"train.bleu_every needs the validation text {Path(config.data.root) / name}")


def mark_average(path: Path, step: int, count: int) -> None:
    """Note in a finished model folder which checkpoints it is the mean of; a folder that is replaced loses the note."""
    write_text(path / FINISHED, json.dumps({"step": step, "average_last": count}))


def is_average_of(path: Path, step: int, count: int) -> bool:
    """Whether a finished model folder is the mean of `count` checkpoints up to a step."""
    try:
        return json.loads((path / FINISHED).read_text(encoding="utf-8")) == {"step": step, "average_last": count}
    except (OSError, ValueError):
        return False


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


def check_same_experiment(path: Path, config: Config, step: int = 0) -> None:
    """Refuse to go on with a run of another experiment: same data and model, same settings that shape the result."""
    before, now = to_dict(from_dict(Config, read_yaml(path), str(path))), to_dict(config)
    for section in ("model", "train"):
        for key, value in now[section].items():
            if key not in FREE and before[section][key] != value:
                raise CheckpointError(
                    f"{path.parent} was trained with {section}.{key} = {before[section][key]!r}, and now it is {value!r}; "
                    "choose another train.directory, or delete that one"
                )
    planned, cooldown = before["train"]["steps"], config.train.cooldown
    if cooldown and config.train.steps != planned and step > planned - cooldown:
        raise CheckpointError(
            f"{path.parent} has begun to cool down towards train.steps = {planned}, and now it is {config.train.steps}; "
            "choose another train.directory, or delete that one"
        )
