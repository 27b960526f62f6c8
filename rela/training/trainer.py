"""The training loop: packed batches in, checkpoints and a finished model folder out."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from rela.config import Config, save_config
from rela.data.batch import Batch
from rela.data.batching import BatchStream
from rela.data.inputs import split_of
from rela.data.sampling import SubwordSampling
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords
from rela.evaluation.scores import Score
from rela.files import remove_leftovers
from rela.model.folder import load_into, save_folder
from rela.model.transformer import Transformer
from rela.training.checkpoint import CheckpointError, Checkpoints, average_weights, is_average_of, mark_average
from rela.training.checks import check_prepared
from rela.training.graphed import GraphedStep
from rela.training.initial import begin_from
from rela.training.log import Meter, TrainingLog, peak_memory
from rela.training.loss import Objective, objective_inputs
from rela.training.optimiser import apply_gradients, make_optimiser, rate_of, set_rate
from rela.training.precision import Precision
from rela.training.processes import Processes, alone_in, join_processes
from rela.training.resume import Experiment, Learner, RunState, progress_of, resume_newest
from rela.training.schedule import centring_share, learning_rate
from rela.training.sharding import gradients_shared, is_finite, shard, whole_weights, write_parts
from rela.training.sparsity import measure_sparsity
from rela.training.stop import StopRequest
from rela.training.validation import VALID, event_of, greedy_bleu, validation_loss, validation_texts
from rela.training.watchdog import Watchdog
from rela.training.writer import BackgroundWriter, host_copy

TakeSteps = Callable[[list[Batch], int], Tensor]
"""(the batches of one optimiser step, their target tokens over all processes) → [loss, nll] sums; trains."""
PARTS = ".optimiser"
"""A folder in the run's directory to which processes write their parts of the optimiser."""
VALIDATION_TOKENS = 8192
"""A validation batch has at most so many target tokens."""


def train(config: Config, quiet: bool = False) -> Path:
    """Train the model of `config` on its prepared data, going on where an earlier run left off; the model folder."""
    with join_processes(config.train.device) as processes:
        trainer = Trainer(config, processes, quiet)
        with alone_in(trainer.directory) if processes.first else contextlib.nullcontext():
            return trainer.run()


class Trainer:
    """One run: its model, optimiser and position in the data."""

    def __init__(self, config: Config, processes: Processes, quiet: bool = False) -> None:
        self.processes, self.device = processes, processes.device
        self.corpus = PreparedCorpus.open(config.data.directory, "train")
        names = validation_texts(config.data)
        self.valid = {name: PreparedCorpus.open(config.data.directory, split_of(name)) for name in names}
        self.subwords = Subwords.load(self.corpus.vocabulary)
        check_prepared(config, self.subwords.size, [self.corpus, *self.valid.values()])
        self.config = config = config.for_training()
        self.settings = config.train
        self.directory = Path(config.train.directory)
        self.quiet = quiet or not processes.first
        torch.manual_seed(config.train.seed)
        self.model = Transformer(config.model)
        self.checkpoints = Checkpoints(self.directory / "checkpoints", self.settings.keep_last)
        self.begun_from = ""  # the hash of the weights of train.from, where this run begins with them
        if self.settings.from_ and self.checkpoints.latest() is None:
            self.begun_from = begin_from(self.model, config, self.subwords.model)
        self.objective = Objective(self.model, config.train.label_smoothing, config.train.sparsity_weight)
        if self.sharded:
            shard(self.objective, processes)
        self.objective.to(self.device)
        self.share = torch.zeros((), device=self.device) if self.settings.centring else None
        self.model.centre_keys(self.share)
        self.optimiser = make_optimiser(self.model, self.settings, self.device)
        self.precision = Precision(self.settings.precision, self.device)
        self.gradient_norm = torch.zeros((), device=self.device)
        self.watchdog = Watchdog(self.subwords.size, patience=max(2 * self.settings.warmup, 1000))
        self.learner = Learner(self.model, self.optimiser, self.watchdog, self.precision)
        self.state = RunState()
        self.stop = StopRequest()
        self.writer = BackgroundWriter()

    @property
    def experiment(self) -> Experiment:
        """What tells a resumed run that it goes on with the same experiment."""
        data = [len(self.corpus), self.corpus.source_tokens, self.corpus.target_tokens]
        fingerprints = {corpus.split: corpus.fingerprint for corpus in (self.corpus, *self.valid.values())}
        return Experiment(self.config, self.subwords.model, data, fingerprints, self.batches)

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
        """Whether batches have one constant shape: where a step is compiled, or runs on a GPU."""
        return self.compiled or self.device.type == "cuda"

    @property
    def sharded(self) -> bool:
        """Whether the processes share one copy of the model, and do not have one each."""
        return self.settings.sharding == "full" and self.processes.world > 1

    @property
    def compiled(self) -> bool:
        """Whether the objective is compiled."""
        wanted = self.settings.compile == "auto" and self.device.type == "cuda" and not self.sharded
        return self.settings.compile == "on" or wanted

    @property
    def graphs(self) -> bool:
        """Whether a step is recorded and replayed: on one GPU, where it is one batch, and is never left out."""
        recordable = self.batches == 1 and self.precision.scaler is None
        return self.compiled and self.device.type == "cuda" and recordable

    def run(self) -> Path:
        """Train to the end, then write the average of the last checkpoints as the finished model."""
        self.resume()
        self.say_what_runs()
        finished = self.directory / "model"
        over = self.state.step >= self.settings.steps or self.out_of_patience()
        if over and is_average_of(finished, self.state.step, self.settings.average_last):
            return finished
        log = self.open_log() if self.processes.first else None
        try:
            with self.batch_stream() as stream, self.stop.from_signals():
                if not over:
                    self.loop(stream, log)
                    self.finish_writing()
            if not self.stop.asked:
                self.write_finished(finished)
        finally:
            if (failure := self.writer.wait()) is not None:  # beside another error, which ends the run
                warnings.warn(str(failure), stacklevel=2)
            if log is not None:
                log.close()
        if self.stop.asked:
            raise KeyboardInterrupt
        return finished

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one; put damaged ones aside, and clear what was left."""
        self.state, damaged = resume_newest(self.checkpoints, self.experiment, self.learner)
        self.processes.wait()  # all have read what the first one now renames
        if not self.processes.first:
            return
        for path, wrong in damaged.items():
            aside = self.checkpoints.set_aside(path)
            goes_on = f"it is now {aside.name}, and the run goes on from step {self.state.step}"
            warnings.warn(f"{wrong}; {goes_on}", stacklevel=2)
        for folder in (self.directory, self.checkpoints.directory):
            remove_leftovers(folder)
        self.checkpoints.prune()  # which a killed run may not have come to
        shutil.rmtree(self.directory / PARTS, ignore_errors=True)

    def say_what_runs(self) -> None:
        """One line before anything takes time: where, in what precision, how large, on what, and from which step."""
        if self.quiet:
            return
        parts = [
            str(self.device),
            self.precision.name,
            *(["compiled"] if self.compiled else []),
            *([f"{self.processes.world} processes"] if self.processes.world > 1 else []),
            f"{sum(parameter.numel() for parameter in self.model.parameters()):,} parameters",
            f"{len(self.corpus):,} pairs with {self.corpus.target_tokens:,} target tokens",
            self.beginning(),
        ]
        print(f"{self.directory}: {', '.join(parts)}, to step {self.settings.steps:,}", file=sys.stderr, flush=True)

    def beginning(self) -> str:
        """Where the run begins, in words."""
        if self.state.step:
            return f"resumed at step {self.state.step:,}"
        return f"from the weights of {self.settings.from_}" if self.begun_from else "from the beginning"

    def open_log(self) -> TrainingLog:
        """The run's log, in its directory, which is made and gets the configuration."""
        if self.corpus.longest_target >= self.batch_tokens:
            tokens = f"{self.batch_tokens} tokens (train.tokens over train.accumulate and processes)"
            longest = f"training pairs of more than {self.batch_tokens - 1} target subwords are left out"
            warnings.warn(f"{longest}: a batch has {tokens}", stacklevel=3)
        self.directory.mkdir(parents=True, exist_ok=True)
        save_config(self.config, self.directory / "config.yaml")
        log = TrainingLog(self.directory, self.settings.steps, self.settings.tensorboard, self.quiet)
        if self.begun_from:
            log.write("from", 0, model=self.settings.from_, sha256=self.begun_from)
        return log

    def batch_stream(self) -> BatchStream:
        """This process's training batches, from where the run was left off."""
        return BatchStream(
            self.corpus,
            self.batch_tokens,
            self.settings.seed,
            rank=self.processes.rank,
            world=self.processes.world,
            static=self.static,
            start=self.state.position,
            pin=self.device.type == "cuda",
            sampling=self.subword_sampling(),
        )

    def subword_sampling(self) -> SubwordSampling | None:
        """How the training text is cut anew in each epoch, if that is wanted."""
        if not self.settings.subword_sampling:
            return None
        longest = min(self.config.data.max_tokens, self.config.model.max_length - 1)
        return SubwordSampling(self.subwords, self.settings.subword_sampling, longest)

    def loop(self, stream: BatchStream, log: TrainingLog | None) -> None:
        """Steps until the configured number, an early stop, or a request to stop."""
        state, settings = self.state, self.settings
        take_step = self.step_function()
        self.model.train()
        meter = Meter(self.device)
        while state.step < settings.steps:
            batches = [next(stream) for _ in range(settings.accumulate)]
            tokens = int(self.processes.total(sum(batch.target_tokens for batch in batches)))
            if state.step < self.watchdog.patience:
                for batch in batches:
                    self.watchdog.count(batch.target_out)
            self.set_centring()
            meter.add(take_step(batches, tokens), tokens)
            state.step += 1
            state.position = stream.position
            if self.is_logged(state.step):
                self.report(meter, log)
                with meter.paused():
                    self.report_sparsity(batches[-1], log)
            with meter.paused():
                if self.between_steps(log):
                    return

    def is_logged(self, step: int) -> bool:
        """Whether a step is one of those after which the log gets a row."""
        return step % self.settings.log_every == 0 or step == self.settings.steps

    def step_function(self) -> TakeSteps:
        """What takes an optimiser step: as it is written, or as a CUDA graph that is recorded and replayed."""
        objective = self.prepared_objective()
        if not self.graphs:
            return partial(self.optimise, objective)
        graphed = GraphedStep(partial(self.recordable_step, objective), self.device)

        def replay(batches: list[Batch], tokens: int) -> Tensor:
            torch.manual_seed(mix(self.settings.seed, self.state.step, 0))
            set_rate(self.optimiser, self.learning_rate())
            return graphed(batches[0], 1.0 / tokens)

        return replay

    def optimise(self, objective: nn.Module, batches: list[Batch], tokens: int) -> Tensor:
        """One optimiser step, whose gradient is the mean over all processes' `tokens`; [loss, nll] sums."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for index, batch in enumerate(batches):
            # Dropout is a function of the seed, the step and the batch's number in it, whichever process has it.
            number = index * self.processes.world + self.processes.rank
            torch.manual_seed(mix(self.settings.seed, self.state.step, number))
            with gradients_shared(objective, index == len(batches) - 1):
                with self.precision.autocast():
                    loss, nll = objective(*objective_inputs(batch.to(self.device)))
                # Gradients are means over processes; the mean wanted is over tokens.
                self.precision.scaled(loss * (self.processes.world / tokens)).backward()
            sums += torch.stack([loss.detach(), nll.detach()])
        set_rate(self.optimiser, self.learning_rate())
        norm = self.gradient_norm if self.is_logged(self.state.step + 1) else None
        apply_gradients(self.optimiser, self.model, self.settings.clip_norm, norm, self.precision.scaler)
        return sums

    def recordable_step(self, objective: nn.Module, batch: Batch, factor: Tensor) -> Tensor:
        """`optimise` for a step that is one batch, in a form that can be recorded: what changes lies on the device."""
        with self.precision.autocast():
            loss, nll = objective(*objective_inputs(batch))
        (loss * factor).backward()
        apply_gradients(self.optimiser, self.model, self.settings.clip_norm, self.gradient_norm)
        return torch.stack([loss.detach(), nll.detach()])

    def set_centring(self) -> None:
        """Give attention the share of the mean key that the step which comes next does without."""
        if self.share is None:
            return
        share = centring_share(self.state.step + 1, self.settings.centring)
        self.share.fill_(share)
        # A compiled step goes on taking nothing off, which costs less than compiling another one.
        if not share and not self.compiled:
            self.model.centre_keys(None)

    def learning_rate(self) -> float:
        """The rate of the step that comes next."""
        return learning_rate(self.state.step + 1, self.config.model.width, self.settings)

    def report(self, meter: Meter, log: TrainingLog | None) -> None:
        """Log the loss and the speed since the last report; raises if the loss shows that training has failed."""
        loss, nll = (self.processes.total(value) / meter.tokens for value in meter.sums.tolist())
        speed = meter.speed()
        if log is not None:
            left = (self.settings.steps - self.state.step) * (meter.tokens / self.settings.log_every) / max(speed, 1e-9)
            more = {
                "gradient_norm": float(self.gradient_norm),
                "loss_scale": self.precision.scale,
                "peak_memory_gib": peak_memory(self.device),
            }
            known = {name: value for name, value in more.items() if value is not None}
            log.train(self.state.step, loss, nll, rate_of(self.optimiser), speed, left, **known)
        self.watchdog.check(self.state.step, nll)
        meter.reset()

    def report_sparsity(self, batch: Batch, log: TrainingLog | None) -> None:
        """Log how sparse attention is on a batch and what it is penalised with, where a sparsity is asked for."""
        if log is not None and self.config.model.target_sparsity is not None and not self.sharded:
            with self.precision.autocast():
                rate, penalty = measure_sparsity(self.model, batch.to(self.device))
            log.write("sparsity", self.state.step, rate=rate, penalty=penalty)

    def between_steps(self, log: TrainingLog | None) -> bool:
        """Validate, save, and say whether to stop."""
        settings, step = self.settings, self.state.step
        stop = False
        last = step == settings.steps
        if self.valid and settings.validate_every and (step % settings.validate_every == 0 or last):
            stop = self.validate(log)
        chosen_now = last and settings.best_by == "bleu"
        if self.valid and settings.bleu_every and (step % settings.bleu_every == 0 or chosen_now):
            stop = self.validate_bleu(log) or stop
        self.stop.asked = self.processes.any(self.stop.asked)
        if step % settings.save_every == 0 or last or stop or self.stop.asked:
            self.save()
        return stop or self.stop.asked

    def validate(self, log: TrainingLog | None) -> bool:
        """Loss on the validation sets; keeps the best model by it, and says whether patience has run out."""
        self.model.eval()
        self.set_centring()  # as in the next step: keys are plain here as soon as the last centred step is over
        losses = {name: self.loss_on(corpus) for name, corpus in self.valid.items()}
        self.model.train()
        state, settings = self.state, self.settings
        loss, _ = losses[settings.best_on]
        better = self.counts and loss < state.best_loss
        state.best_loss = loss if better else state.best_loss
        if settings.best_by == "loss":
            self.keep_best(better)
        for name, (loss, nll) in losses.items():
            perplexity = math.exp(min(nll, 50.0))
            text = f"loss {loss:.3f}, perplexity {perplexity:.2f}{self.mark(name, better, 'loss')}"
            self.log_validation(log, "valid", name, text, loss=loss, nll=nll, perplexity=perplexity)
        return self.out_of_patience()

    def loss_on(self, corpus: PreparedCorpus) -> tuple[float, float]:
        """(loss, negative log-likelihood) a token of a validation set."""
        budget = min(self.batch_tokens, VALIDATION_TOKENS)
        autocast = self.precision.autocast
        if isinstance(self.objective, FSDPModule):
            # A call gathers parameters from all processes, so each of them sees the same batches, which are all.
            losses = validation_loss(self.objective, corpus, budget, Processes(0, 1, self.device), autocast)
            self.objective.reshard()
            return losses
        # forward: a call may be compiled, for batches of one size
        return validation_loss(self.objective.forward, corpus, budget, self.processes, autocast)

    @property
    def counts(self) -> bool:
        """Whether a validation may choose the best model: while keys are centred it is not of the one that is saved."""
        return self.state.step >= self.settings.centring

    def keep_best(self, better: bool) -> None:
        """Save the model as the best one if it is better than those before; count the validation if it is not."""
        state = self.state
        state.bad_validations = 0 if better else state.bad_validations + self.counts
        if not better:
            return
        self.finish_writing()
        weights = whole_weights(self.model, self.processes)
        if self.processes.first:
            best = self.directory / "best"
            self.writer.start(partial(save_folder, best, self.config, weights, self.subwords.model))

    def mark(self, name: str, better: bool, measure: str) -> str:
        """What a line on a validation says of the best model, which one set and one measure choose."""
        chooses = name == self.settings.best_on and measure == self.settings.best_by
        return " (best so far)" if better and chooses else ""

    def log_validation(self, log: TrainingLog | None, event: str, name: str, text: str, **values: float | str) -> None:
        """Log what a validation set has shown."""
        if log is not None:
            log.write(event_of(event, name), self.state.step, **values)
            of = "" if name == VALID else f" ({name})"
            log.say(f"step {self.state.step}: validation{of} {text}")

    def out_of_patience(self) -> bool:
        """Whether too many validations in a row have brought nothing better."""
        return bool(self.settings.patience) and self.state.bad_validations >= self.settings.patience

    def validate_bleu(self, log: TrainingLog | None) -> bool:
        """Greedy BLEU on the validation sets, by the first process; otherwise as `validate`."""
        scores = self.bleu_scores()
        state, settings = self.state, self.settings
        bleu = self.processes.total(scores[settings.best_on].value if self.processes.first else 0.0)
        better = self.counts and bleu > state.best_bleu
        state.best_bleu = bleu if better else state.best_bleu
        if settings.best_by == "bleu":
            self.keep_best(better)
        for name, score in scores.items():
            text = f"BLEU {score.value:.2f} (greedy){self.mark(name, better, 'bleu')}"
            self.log_validation(log, "bleu", name, text, bleu=score.value, signature=score.signature)
        return self.out_of_patience()

    def bleu_scores(self) -> dict[str, Score]:
        """Greedy BLEU on each validation set, in the first process; nothing elsewhere."""
        model = self.model
        if self.sharded:  # the first process translates with a copy
            weights = whole_weights(self.model, self.processes)
            if self.processes.first:
                model = Transformer(self.config.model)
                load_into(model, weights, "the sharded model")
        if not self.processes.first:
            return {}
        model.centre_keys(None)  # what is saved, and what translates, has plain keys
        scores = {name: greedy_bleu(model, self.subwords, self.config, self.device, name) for name in self.valid}
        model.centre_keys(self.share)
        self.model.train()
        return scores

    def save(self) -> None:
        """Write a checkpoint from the first process, beside the next steps. Weights that are not numbers are not saved.

        What could not be written is an error at the next checkpoint, or at the end.
        """
        finite = all(is_finite(parameter) for parameter in self.model.parameters())
        if self.processes.any(not finite):
            self.watchdog.check(self.state.step, math.nan)
        self.finish_writing()
        weights = whole_weights(self.model, self.processes)
        optimiser: dict[str, Tensor] | Path = self.directory / PARTS
        if self.sharded:
            write_parts(self.directory / PARTS, self.learner.tensors(), self.processes)
        elif self.processes.first:
            optimiser = host_copy(self.learner.tensors())
        if self.processes.first:
            progress = progress_of(self.state, self.experiment)
            self.writer.start(partial(self.write_checkpoint, progress, weights, optimiser))

    def write_checkpoint(
        self, progress: dict[str, Any], weights: dict[str, Tensor], optimiser: dict[str, Tensor] | Path
    ) -> None:
        """Write a checkpoint of copies, in the writer's thread; if that fails, remove the optimiser's parts on disk."""
        try:
            self.checkpoints.save(progress, self.config, weights, optimiser, self.subwords.model)
        except CheckpointError:
            if isinstance(optimiser, Path):
                shutil.rmtree(optimiser, ignore_errors=True)
            raise

    def finish_writing(self) -> None:
        """Wait for what the first process is writing; an error of it is raised in all processes."""
        error = self.writer.wait()
        if self.processes.any(error is not None):
            raise error or CheckpointError("the first process could not write its checkpoint")

    def write_finished(self, path: Path) -> None:
        """Write the finished model: the mean of the last checkpoints' weights."""
        if self.processes.first:
            last = self.checkpoints.paths()[-self.settings.average_last :]
            save_folder(path, self.config, average_weights(last), self.subwords.model)
            mark_average(path, self.state.step, self.settings.average_last)
        self.processes.wait()

    def prepared_objective(self) -> nn.Module:
        """The objective, compiled and distributed as the settings and processes want."""
        objective: nn.Module = self.objective
        if self.compiled:
            objective.compile(dynamic=False)
        if self.processes.world > 1 and not self.sharded:
            ids = [self.device.index] if self.device.type == "cuda" else None
            objective = DistributedDataParallel(objective, device_ids=ids)
        return objective


def mix(*numbers: int) -> int:
    """One seed of several numbers, different whenever any of them is."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (2**63)
    return seed
