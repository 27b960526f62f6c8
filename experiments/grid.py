"""A grid: a YAML file that lists the runs of an experiment and their order.

    experiment: table1
    variations:
      rela-g: {attention: rela-g, row: 7, seconds: 220}
      learned: {attention: rela-g, set: [model.threshold=learned]}
    runs:
      - {variation: [rela-g, learned], seed: [1, 2, 3], task: en-de}

A task says what is trained on and what is measured. Tasks are in tasks.yaml, and all grids share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.rows import check_name
from rela.config import from_dict, read_yaml

ROOT = Path(__file__).parents[1]
"""The repository; configurations are named from here."""
TASKS = Path(__file__).with_name("tasks.yaml")
DEFAULT_SECONDS = 260.0
ATTENTIONS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class TestSet:
    """Text to translate and its reference."""

    source: str
    target: str


@dataclass(frozen=True)
class AnalysisText:
    """The pairs on which attention is measured; the first so many."""

    source: str
    target: str
    pairs: int = 1000
    word_classes: str = ""
    """A word list of the target language in the repository, for the null rate after words of each class."""


@dataclass(frozen=True)
class Gold:
    """Word links and the text they belong to."""

    source: str
    target: str
    links: str
    one_based: bool = False
    flip: bool = False
    tokenised: bool = False
    respell: dict[str, str] = field(default_factory=dict)
    """What is replaced in the text before a model reads it."""


@dataclass(frozen=True)
class Task:
    """A language pair: the configuration to train with, and the text to measure on."""

    config: str
    tests: dict[str, TestSet]
    analysis: AnalysisText | None = None
    gold: Gold | None = None


@dataclass(frozen=True)
class Variation:
    """What a run does otherwise than its task's configuration says."""

    overrides: tuple[str, ...]
    row: int | None = None
    """Of the paper's table."""
    seconds: float = DEFAULT_SECONDS
    """How long a run is expected to take, until a row says it better."""


@dataclass(frozen=True)
class Run:
    """One cell of a grid."""

    experiment: str
    task_name: str
    task: Task
    variation_name: str
    variation: Variation
    seed: int

    @property
    def id(self) -> str:
        return f"{self.experiment}/{self.task_name}/{self.variation_name}/{self.seed}"

    @property
    def overrides(self) -> list[str]:
        return [*self.variation.overrides, f"train.seed={self.seed}"]


@dataclass(frozen=True)
class Grid:
    """An experiment: its variations by name, and its runs in order."""

    experiment: str
    variations: dict[str, Variation]
    runs: tuple[Run, ...]
    workers: int = 1
    """So many runs side by side are what the `seconds` of the variations were measured with."""


def load_grid(path: str | Path, tasks: str | Path = TASKS) -> Grid:
    """The grid of a YAML file; an unknown key, task or variation is an error that names it."""
    values = mapping(read_yaml(path), ("experiment", "variations", "runs"), str(path), ("workers",))
    experiment = values["experiment"]
    check_name(experiment, str(path))
    workers = values.get("workers", 1)
    if type(workers) is not int or workers < 1:
        raise ValueError(f"{path}: workers is {workers!r}; wanted a number of processes, at least 1")
    known = load_tasks(tasks)
    if not isinstance(values["variations"], dict):
        raise ValueError(f"{path}: variations is {values['variations']!r}; wanted a mapping from their names")
    variations = {name: read_variation(text, f"{path}: {name}") for name, text in values["variations"].items()}
    runs: list[Run] = []
    for number, entry in enumerate(as_list(values["runs"]), start=1):
        where = f"{path}: run {number}"
        entry = mapping(entry, ("variation", "seed", "task"), where)
        runs += [
            Run(experiment, task, look_up(known, task, where), name, look_up(variations, name, where), seed)
            for task in as_list(entry["task"])
            for seed in as_list(entry["seed"])
            for name in as_list(entry["variation"])
        ]
    ids = [run.id for run in runs]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise ValueError(f"{path} holds {twice[0]} twice; wanted each run once")
    return Grid(experiment, variations, tuple(runs), workers)


def load_tasks(path: str | Path = TASKS) -> dict[str, Task]:
    """All tasks by name."""
    return {name: read_task(values, f"{path}: {name}") for name, values in read_yaml(path).items()}


def read_task(values: Any, where: str) -> Task:
    """A task from plain values."""
    values = mapping(values, ("config", "tests"), where, optional=("analysis", "gold"))
    return Task(
        config=str(ROOT / values["config"]),
        tests={name: from_dict(TestSet, test, f"{where}: {name}") for name, test in values["tests"].items()},
        analysis=from_dict(AnalysisText, values["analysis"], f"{where}: analysis") if "analysis" in values else None,
        gold=read_gold(values["gold"], f"{where}: gold") if "gold" in values else None,
    )


def read_gold(values: Any, where: str) -> Gold:
    return Gold(**mapping(values, ("source", "target", "links"), where, ("one_based", "flip", "tokenised", "respell")))


def read_variation(values: Any, where: str) -> Variation:
    """A variation from plain values: `attention` is one kind for all three attentions, or one for each."""
    values = mapping(values, (), where, optional=("attention", "set", "row", "seconds"))
    attention = values.get("attention", {})
    if isinstance(attention, str):
        attention = dict.fromkeys(ATTENTIONS, attention)
    kinds = mapping(attention, (), f"{where}: attention", optional=ATTENTIONS)
    overrides = [f"model.{name}_attention={kind}" for name, kind in kinds.items()]
    seconds = values.get("seconds", DEFAULT_SECONDS)
    if not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ValueError(f"{where}: seconds is {seconds!r}; wanted a number above 0")
    return Variation(
        overrides=(*overrides, *map(str, as_list(values.get("set", [])))), row=values.get("row"), seconds=seconds
    )


def mapping(values: Any, wanted: Sequence[str], where: str, optional: Sequence[str] = ()) -> dict[str, Any]:
    """The values as a dictionary with all the wanted keys and no others than the optional ones."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} is {values!r}; wanted a mapping with {', '.join([*wanted, *optional])}")
    if missing := [key for key in wanted if key not in values]:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    if unknown := [str(key) for key in values if key not in (*wanted, *optional)]:
        raise ValueError(f"{where} has {', '.join(unknown)}; wanted {', '.join([*wanted, *optional])}")
    return values


def look_up(known: dict[str, Any], name: str, where: str) -> Any:
    if name not in list(known):  # which need not be hashable
        raise ValueError(f"{where} names {name!r}; wanted one of {', '.join(known)}")
    return known[name]


def as_list(value: Any) -> list[Any]:
    """A list as it is; anything else as the only member of one."""
    return value if isinstance(value, list) else [value]


def matching(runs: Sequence[Run], words: Sequence[str]) -> Iterator[Run]:
    """The runs whose id contains one of the words; all of them where there are none."""
    return (run for run in runs if not words or any(word in run.id for word in words))
