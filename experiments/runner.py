"""Does the runs of a grid that are not done yet, as many as fit into a time budget, and writes a row for each."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from experiments.grid import Grid, Run, matching
from experiments.measures import attention, scores
from experiments.rows import ROWS, Row, append_row, read_rows, row_of
from experiments.workers import claimed
from rela.config import Config, load_config, to_dict
from rela.data.shards import VOCABULARY, ids_folder, vocabulary_path
from rela.decoding.translate import Translator
from rela.device import pick_device
from rela.files import write_text
from rela.model.folder import halved, load_folder, save_folder, unique_weights
from rela.training.trainer import train

MARGIN = 1.05
"""A run may take so much longer than the longest one like it."""
SLOWER_BY_A_WORKER = 0.8
"""A run takes so much longer for each one beside it, until a row says it better: its training takes all of a GPU."""
CURVE_POINTS = 100
RESULT = "result.json"
"""In a run's folder: what earlier commands measured of it."""
PACKAGES = ("torch", "triton", "sacrebleu", "sentencepiece", "numpy")


@dataclass(frozen=True)
class Options:
    """How the runs of a grid are done."""

    minutes: float = 9.5
    """What fits into so much time, counted from the start of the command."""
    data: Path = Path("data")
    """The folder of the corpora, and of prepared/, as configurations and tasks name them."""
    runs: Path = Path("runs/experiments")
    """Where models are trained; a finished run's folder is deleted."""
    rows: Path = ROWS
    out: Path | None = None
    """New rows are also written here."""
    only: Sequence[str] = ()
    """Words of which a run's id has to contain one."""
    overrides: Sequence[str] = ()
    limit: int | None = None
    """Use the first so many sentences of every test set: for rehearsals."""
    commit: str = ""
    keep_model: Path | None = None
    """A folder for copies of the models in half precision."""
    resumable: bool = False
    """Start a run that may not fit; it stops when the time is over and goes on with the next command."""
    retry: bool = False
    """Do runs again that failed, or whose attention was not measured."""
    workers: int = 1
    """So many processes share the grid and the device, this one among them."""


@dataclass
class Result:
    """What is known of a run so far; after an error, what had been measured before it."""

    training: Row = field(default_factory=dict)
    scores: Row | None = None
    analysis: Row | None = None
    seconds: dict[str, float | None] = field(default_factory=dict)
    """By stage, over all commands that worked at it; None where one of them was killed."""
    parameters: int | None = None
    error: dict[str, str] | None = None


class OutOfTime(Exception):
    """A run was stopped in training, because the time is over; it has saved what it had done."""


def run_grid(grid: Grid, options: Options, started: float, say: Callable[[str], None] = print) -> list[Row]:
    """Do what is left to do of a grid within the budget, most telling runs first; the new rows."""
    deadline = started + 60 * options.minutes
    new: list[Row] = []
    for run in matching(grid.runs, options.only):
        with claimed(options.runs, run.id) as mine:
            if not mine:  # another worker does it
                continue
            try:
                row = do_if_left(run, grid, options, deadline, say)
            except OutOfTime:
                say(f"{run.id}: stopped, the time is over; the same command goes on")
                break
        if row is None:
            continue
        new.append(row)
        say(f"{run.id}: {summary(row)}")
        if row["error"] and not device_works():
            say("the GPU no longer answers this process; run the command again")
            break
    return new


def do_if_left(run: Run, grid: Grid, options: Options, deadline: float, say: Callable[[str], None]) -> Row | None:
    """The row of a run that had none, written to its files; None if it is done, does not fit or cannot be done."""
    path = options.rows / f"{grid.experiment}.jsonl"
    rows = read_rows(path)
    config = configuration(run, options)
    before = row_of(rows, run.id, to_dict(config), options.limit)
    if before is not None and not (options.retry and (before["error"] or lacks_analysis(before, run))):
        return None
    left = deadline - time.monotonic()
    needed = MARGIN * expected_seconds(run, config, rows, grid, options.workers)
    if left < needed and not (options.resumable and left > 0):
        say(f"{run.id}: left for later, {needed:.0f} s expected and {max(left, 0):.0f} s left")
        return None
    if (missing := missing_file(run, config, options)) is not None:
        say(f"{run.id}: skipped, {missing} is missing")
        return None
    try:
        row = do(run, config, options, deadline, say)
    except ImportError as error:
        say(f"{run.id}: skipped, {error}")
        return None
    for folder in (options.out, options.rows):
        if folder is not None:
            append_row(folder / path.name, row)
    return row


def lacks_analysis(row: Row, run: Run) -> bool:
    """Whether a run that is done was cut before its attention was measured."""
    return run.task.analysis is not None and row["analysis"] is None


def configuration(run: Run, options: Options) -> Config:
    """What a run trains, its paths as the repository names them."""
    return read_config(run.task.config, (*run.overrides, *options.overrides))


@cache
def read_config(path: str, overrides: tuple[str, ...]) -> Config:
    """`load_config`, once for each run: tables ask for the same ones again and again."""
    return load_config(path, overrides)


def expected_seconds(run: Run, config: Config, rows: Sequence[Row], grid: Grid, workers: int = 1) -> float:
    """The longest time that a run like this one took beside as many others.

    Without one it is what the grid says, by as much longer or shorter as other variations of the task were.
    """
    alike = [row for row in rows if row["task"] == run.task_name and row.get("workers", 1) == workers]
    timed = [row for row in alike if row["variation"] in grid.variations and None not in row["seconds"].values()]
    took = [(row["variation"], full_seconds(row, config)) for row in timed if not row["error"]]
    if like := [seconds for name, seconds in took if name == run.variation_name]:
        return max(like)
    slowness = [seconds / grid.variations[name].seconds for name, seconds in took]
    return run.variation.seconds * max(slowness, default=slowdown(workers, than=grid.workers))


def slowdown(workers: int, than: int) -> float:
    """How much longer one of `workers` runs side by side is expected to take than one of `than`; never less long."""
    return max(1.0, (1 + SLOWER_BY_A_WORKER * (workers - 1)) / (1 + SLOWER_BY_A_WORKER * (than - 1)))


def full_seconds(row: Row, config: Config) -> float:
    """How long a row's run would have taken with as many steps as the configuration has."""
    seconds: float = sum(row["seconds"].values())
    steps: int = row["config"]["train"]["steps"]
    return seconds * config.train.steps / steps


def missing_file(run: Run, config: Config, options: Options) -> Path | None:
    """The first file that a run needs and that is not there."""
    task = run.task
    names = [name for test in task.tests.values() for name in (test.source, test.target)]
    names += [task.analysis.source, task.analysis.target] if task.analysis else []
    names += [task.gold.source, task.gold.target, task.gold.links] if task.gold else []
    needed = [prepared(config, options) / "meta.json", *(options.data / name for name in names)]
    return next((path for path in needed if not path.exists()), None)


def do(run: Run, config: Config, options: Options, deadline: float, say: Callable[[str], None]) -> Row:
    """Train, evaluate and analyse; an error ends the run and stands in its row, with what was measured before."""
    folder = options.runs / run.id.replace("/", "-")
    result = earlier_result(folder)
    stage = "training"
    say(f"{run.id}: training in {folder}")
    try:
        with stopwatch(result, stage, folder):
            model = train_model(config, options, folder, deadline)
        say(f"{run.id}: trained")
        stage = "evaluation"
        translator = Translator.load(model)
        result.parameters = sum(translator.model.parameter_counts().values())
        if result.scores is None:
            with stopwatch(result, stage, folder):
                result.scores = scores(translator, run.task, options.data, options.limit)
        stage = "analysis"
        if run.task.analysis is not None:
            with stopwatch(result, stage, folder):
                result.analysis = attention(translator, run.task.analysis, run.task.gold, options.data, options.limit)
        if options.keep_model is not None:
            keep_model(model, options.keep_model / folder.name)
    except OutOfTime:
        raise
    except Exception as error:
        if isinstance(error, ImportError) and stage == "training":
            raise
        message = " ".join(str(error).split())
        result.error = {"stage": stage, "type": type(error).__name__, "message": message[:500]}
        traceback.print_exc()
    result.training = training_log(folder / "log.jsonl")
    row = make_row(run, config, options, result)
    shutil.rmtree(folder, ignore_errors=True)
    return row


def train_model(config: Config, options: Options, folder: Path, deadline: float) -> Path:
    """The folder of the trained model; a run that an earlier command began is continued."""
    forget_compiled()
    # The row keeps the configuration as the repository has it; the folders are this machine's.
    root = options.data / Path(config.data.root).name
    data = replace(config.data, root=str(root), directory=str(prepared(config, options)))
    settings = replace(config.train, directory=str(folder), tensorboard=False)
    try:
        with stop_at(deadline) if options.resumable else contextlib.nullcontext():
            return train(replace(config, data=data, train=settings), quiet=True)
    except KeyboardInterrupt:
        if options.resumable and time.monotonic() >= deadline:
            raise OutOfTime from None
        raise


def prepared(config: Config, options: Options) -> Path:
    """Where the ids are that a configuration trains on."""
    return options.data / "prepared" / Path(config.data.directory).name


def keep_model(model: Path, copy: Path) -> None:
    """A copy of a model folder in half precision."""
    transformer, config, subwords = load_folder(model)
    save_folder(copy, config, halved(unique_weights(transformer)), subwords)


def training_log(path: Path) -> Row:
    """What a row keeps of a training log: the thinned curve, the validations, the speed and the memory."""
    events: dict[str, dict[int, Row]] = {"train": {}, "valid": {}}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a run that was killed
                event = json.loads(line)
                # A run that was resumed repeats the steps since its last checkpoint.
                events.get(event["event"], {})[event["step"]] = event
    steps = [events["train"][step] for step in sorted(events["train"])]
    validations = [events["valid"][step] for step in sorted(events["valid"])]
    speeds = sorted(event["tokens_per_second"] for event in steps)
    return {
        "curve": columns(thinned(steps, CURVE_POINTS), ("step", "nll", "loss")),
        "validation": columns(validations, ("step", "nll", "loss")),
        "tokens_per_second": round(speeds[len(speeds) // 2]) if speeds else None,
        "peak_memory_gib": max((event.get("peak_memory_gib", 0.0) for event in steps), default=0.0) or None,
    }


def columns(events: Sequence[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    """Events as one list for each name; numbers to five digits."""

    def short(value: Any) -> Any:
        return round(value, 5) if isinstance(value, float) else value

    return {name: [short(event[name]) for event in events] for name in names}


def thinned(events: Sequence[Row], count: int) -> list[Row]:
    """At most `count` events, the first and the last among them."""
    if len(events) <= count:
        return list(events)
    return [events[i * (len(events) - 1) // (count - 1)] for i in range(count)]


def make_row(run: Run, config: Config, options: Options, result: Result) -> Row:
    """One line of the experiment's file."""
    values = to_dict(config)
    for name in ("directory", "tensorboard"):
        del values["train"][name]
    return {
        "id": run.id,
        "experiment": run.experiment,
        "task": run.task_name,
        "variation": run.variation_name,
        "row": run.variation.row,
        "seed": run.seed,
        "limit": options.limit,
        "error": result.error,
        "overrides": [*run.overrides, *options.overrides],
        "config": values,
        "commit": options.commit,
        "command": command(run, options),
        "data": data_facts(prepared(config, options)),
        "parameters": result.parameters,
        "training": result.training,
        "scores": result.scores,
        "analysis": result.analysis,
        "workers": options.workers,
        "seconds": {stage: rounded(seconds) for stage, seconds in result.seconds.items()},
        "device": device_name(),
        "versions": versions(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def command(run: Run, options: Options) -> str:
    """The command that does this run alone."""
    words = ["python -m experiments run", f"experiments/grids/{run.experiment}.yaml", "--only", run.id]
    for override in options.overrides:
        words += ["--set", override]
    return " ".join([*words, *([] if options.limit is None else ["--limit", str(options.limit)])])


def data_facts(directory: Path) -> Row:
    """A checksum of the ids and the vocabulary that a run was trained on, and how many pairs there are."""
    digest = hashlib.sha256()
    meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
    ids = sorted(path for path in ids_folder(directory, meta).iterdir() if path.name != VOCABULARY)
    for path in [vocabulary_path(directory, meta), *ids]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    train_split = meta["splits"]["train"]
    return {"sha256": digest.hexdigest()} | {
        name: train_split[name] for name in ("pairs", "source_tokens", "target_tokens")
    }


def summary(row: Row) -> str:
    """A row in a line for people."""
    if row["error"]:
        return "failed in {stage}: {message}".format(**row["error"])
    bleu = ", ".join(f"{name} {found['bleu']['value']:.2f}" for name, found in row["scores"].items())
    known = {stage: seconds for stage, seconds in row["seconds"].items() if seconds is not None}
    times = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in known.items())
    return f"BLEU {bleu}; {times}"


def device_name() -> str:
    return (
        torch.cuda.get_device_name()
        if pick_device("auto").type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def known_commit() -> str:
    """The commit of the working tree, from RELA_COMMIT or from git; "unknown" where neither says."""
    if given := os.environ.get("RELA_COMMIT"):
        return given
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def forget_compiled() -> None:
    """Free what the run before left: compiled code counts against a limit, and memory is asked for its peak."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def device_works() -> bool:
    """Whether the GPU still serves this process; after some errors it does not."""
    if not torch.cuda.is_available():
        return True
    try:
        torch.cuda.synchronize()
        return bool(torch.ones(1, device="cuda").item())
    except RuntimeError:
        return False


def earlier_result(folder: Path) -> Result:
    """What earlier commands measured of a run; its time of training is unknown if one of them was killed."""
    path = folder / RESULT
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        return Result(scores=found["scores"], seconds=found["seconds"])
    return Result(seconds={"training": None} if folder.exists() else {})


@contextlib.contextmanager
def stopwatch(result: Result, stage: str, folder: Path) -> Iterator[None]:
    """Add how long a stage took, also one that failed, and keep what is known of the run in its folder."""
    started, before = time.monotonic(), result.seconds.get(stage, 0.0)
    keep_result(replace(result, seconds=result.seconds | {stage: None}), folder)  # what a kill leaves
    try:
        yield
    finally:
        result.seconds[stage] = None if before is None else before + time.monotonic() - started
        keep_result(result, folder)


def keep_result(result: Result, folder: Path) -> None:
    """Write for the next command what this one measured; nothing before training has made the folder."""
    if folder.exists():
        write_text(folder / RESULT, json.dumps({"scores": result.scores, "seconds": result.seconds}))


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


@contextlib.contextmanager
def stop_at(deadline: float) -> Iterator[None]:
    """Ask training to save and stop at a time, as SIGTERM does; outside of its steps, stop at once."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    timer = threading.Timer(max(deadline - time.monotonic(), 0.0), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGTERM, before)
