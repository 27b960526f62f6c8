"""Mutation testing: which small changes of the code does no test notice?

    python -m scripts.mutation rela/attention rela/evaluation --seconds 450 --processes 12 --out mutants.jsonl

Each mutant is one change of one module, made in memory: a comparison, an operator, a constant, a condition, a value
that is returned. It runs, in a fork of this process, against the test file with the module's stem and against those
that import the module; what survives runs against short tests of other modules, too. A row of the output is a mutant
and what became of it. The order of the mutants depends on the seed alone, and time decides how many are tried.
RELA_WARNINGS=1 lets warnings pass, where other versions of libraries warn of more.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PRELOADED = (
    "torch",
    "triton.runtime.interpreter",
    "pytest",
    "hypothesis",
    "sacrebleu",
    "sentencepiece",
    "transformers.modeling_utils",
)
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # seconds in each process
}
MEMORY = 24 * 2**30
"""Address space of a mutant, in bytes: one that allocates without end is stopped."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One change: of the node with this number in `ast.walk` of the module."""

    module: str
    node: int
    change: str
    line: int
    before: str


def changes_of(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """The names of the changes that a node allows, each with what makes it in place."""

    def put(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in SWAPS:
            yield "operator", put("op", SWAPS[type(node.op)]())
        case ast.Compare() if type(node.ops[0]) in SWAPS:
            yield "comparison", put("ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]])
        case ast.Constant(value=bool(value)):
            yield "constant", put("value", not value)
        case ast.Constant(value=int(number) | float(number)):
            yield "constant", put("value", number + 1)
        case ast.If() | ast.IfExp() | ast.While():
            yield "condition", put("test", ast.UnaryOp(ast.Not(), node.test))
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "return", put("value", ast.Constant(None))


def ignored(tree: ast.AST) -> set[int]:
    """The nodes whose change is of no interest: annotations, and what is shown to people or said in an error."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.arg() | ast.AnnAssign():
                parts = [node.annotation]
            case ast.FunctionDef():
                parts = [node.returns]
            case ast.ClassDef():
                parts = list(node.decorator_list)  # dataclass(frozen=True): no code sets what is frozen
            case ast.Raise() | ast.JoinedStr():
                parts = [node]
            case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
                parts = [node]
        found |= {id(below) for part in parts if part is not None for below in ast.walk(part)}
    return found


def mutants_of(path: str) -> list[Mutant]:
    """Every mutant of a module, given by its path in the checkout."""
    source = (ROOT / path).read_text(encoding="utf-8")
    tree, found = ast.parse(source), []
    skipped = ignored(tree)
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in skipped:
            for name, _ in changes_of(node):
                line = getattr(node, "lineno", 0)
                found.append(Mutant(path, number, name, line, first_line(node)))
    return found


def first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:160]


def changed(mutant: Mutant) -> tuple[types.CodeType, str]:
    """The code of a mutant, and the line that was changed as it is now."""
    tree = ast.parse((ROOT / mutant.module).read_text(encoding="utf-8"))
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    dict(changes_of(node))[mutant.change]()
    ast.fix_missing_locations(tree)
    return compile(tree, str(ROOT / mutant.module), "exec"), first_line(node)


def module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


class Substitute(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the code of a mutant."""

    def __init__(self, module: str, code: types.CodeType) -> None:
        self.module, self.code = module, code

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != module_name(self.module):
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self.module, loader=self)

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self.code, module.__dict__)


class FailedTests:
    """A plugin of pytest that keeps the names of the tests that failed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.names.append(report.nodeid)


@dataclass
class Run:
    """A fork that runs test files, and when it began."""

    pid: int
    began: float
    limit: float
    log: Path


class Outcome(NamedTuple):
    """How a run ended: passed, failed or timeout, and the tests that failed."""

    how: str
    seconds: float
    failed: list[str]
    output: str


Job = tuple[Mutant | str, Sequence[str], Sequence[str], float]
"""A mutant, or a name where nothing is mutated; test files; tests to leave out; seconds at most."""


def start(subject: Mutant | str, tests: Sequence[str], left_out: Sequence[str], limit: float, log: Path) -> Run:
    """Start the tests in a fork; its exit code is 0 if all pass, and `log` has the names of those that do not."""
    pid = os.fork()
    if pid:
        return Run(pid, time.monotonic(), limit, log)
    code = 99
    try:
        os.setpgid(0, 0)  # to be killed with what the tests start
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(f"{log}.output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        code = run_tests(tests, left_out, log, subject if isinstance(subject, Mutant) else None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_tests(tests: Sequence[str], left_out: Sequence[str], log: Path, mutant: Mutant | None) -> int:
    """Run test files in this process, with a module exchanged for a mutant; the exit code of pytest."""
    import pytest

    if mutant is not None:
        sys.meta_path.insert(0, Substitute(mutant.module, changed(mutant)[0]))
    failed = FailedTests()
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={log}.folder"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += ["-W", "default"] if "RELA_WARNINGS" in os.environ else []
    options += [] if mutant is None else ["-x"]
    code = int(pytest.main([*options, *(f"--deselect={name}" for name in left_out), *tests], plugins=[failed]))
    log.write_text("\n".join(failed.names))
    return code


def ended(run: Run) -> str | None:
    """How a run ended: passed, failed or timeout; None while it runs."""
    pid, status = os.waitpid(run.pid, os.WNOHANG)
    if pid:
        return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
    if time.monotonic() - run.began > run.limit:
        os.killpg(run.pid, signal.SIGKILL)
        os.waitpid(run.pid, 0)
        return "timeout"
    return None


class Tests:
    """The test files of the checkout: which belong to a module, how long each takes, which tests fail anyway."""

    def __init__(self, modules: Sequence[str]) -> None:
        from tests.test_stems import COVERED, imported_by, own_test, relative

        self.seconds: dict[str, float] = {}
        self.failing: list[str] = []
        self.of_package: dict[str, list[str]] = {}
        self.close: dict[str, list[str]] = {}
        for module in modules:
            package = module.split("/")[1]
            files = sorted((ROOT / "tests" / package).rglob("test_*.py"))
            self.of_package[module] = [relative(path) for path in files]
            own = own_test(module)
            close = [own, *(test for test, covered in COVERED.items() if module in covered)]
            close += [relative(path) for path in files if module in imported_by(path)]
            self.close[module] = [test for test in dict.fromkeys(close) if (ROOT / test).is_file()]

    def measure(self, workers: Workers, end: float) -> None:
        """Run every file that belongs to a module, without a mutant."""
        files = sorted({test for tests in self.close.values() for test in tests})
        limit = max(10.0, 0.15 * (end - time.monotonic()))
        for test, outcome in workers.each([(test, [test], (), limit) for test in files], end, end):
            print(f"{test}: {outcome.how}, {outcome.seconds:.1f} s, {len(outcome.failed)} tests fail", flush=True)
            self.failing += outcome.failed
            if outcome.how == "passed" or (outcome.how == "failed" and outcome.failed):
                self.seconds[test] = outcome.seconds
            else:
                print(outcome.output[-2000:], flush=True)

    def limit(self, tests: Sequence[str]) -> float:
        return 15 + 3 * sum(self.seconds[test] for test in tests)

    def fastest(self, tests: Sequence[str], seconds: float) -> list[str]:
        """The fastest of the files, as many as run in so many seconds together."""
        known = sorted((test for test in tests if test in self.seconds), key=self.seconds.__getitem__)
        total = itertools.accumulate(self.seconds[test] for test in known)
        return [test for test, needed in zip(known, total, strict=True) if needed <= seconds]


class Workers:
    """Runs at most so many forks at a time."""

    def __init__(self, processes: int, folder: Path) -> None:
        self.processes, self.folder, self.number = processes, folder, 0

    def each(self, jobs: Sequence[Job], until: float, end: float) -> Iterator[tuple[Any, Outcome]]:
        """Run jobs, none of which starts after `until` or runs on after `end`; yield whose each is and its outcome."""
        waiting, running = list(reversed(jobs)), dict[int, tuple[Mutant | str, Run]]()
        while running or (waiting and time.monotonic() < until):
            if time.monotonic() > end:
                for pid in running:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                return
            while waiting and len(running) < self.processes and time.monotonic() < until:
                subject, tests, left_out, limit = waiting.pop()
                self.number += 1
                run = start(subject, tests, left_out, limit, self.folder / str(self.number))
                running[run.pid] = (subject, run)
            for pid, (subject, run) in list(running.items()):
                if (how := ended(run)) is not None:
                    del running[pid]
                    failed = run.log.read_text().splitlines() if run.log.is_file() else []
                    said = Path(f"{run.log}.output").read_text(errors="replace")
                    yield subject, Outcome(how, time.monotonic() - run.began, failed, said)
            time.sleep(0.02)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", help="modules, or folders of them")
    parser.add_argument("--seconds", type=float, default=600.0, help="time for everything")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="mutants at most")
    parser.add_argument(
        "--longest", type=float, default=30.0, help="seconds of tests for a mutant; the shortest are taken"
    )
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args(arguments)
    attack(options)


def attack(options: argparse.Namespace) -> None:
    """Try mutants until the time is over, and write what became of them."""
    began = time.monotonic()
    os.chdir(ROOT)
    os.environ.update(ENVIRONMENT)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    modules = modules_in(options.paths)
    mutants = [mutant for module in modules for mutant in mutants_of(module)]
    random.Random(options.seed).shuffle(mutants)
    longest, tests, endings = options.longest, Tests(modules), dict[Mutant, str]()
    with TemporaryDirectory() as folder:
        workers, end = Workers(options.processes, Path(folder)), began + options.seconds
        tests.measure(workers, end)

        def jobs(chosen: Sequence[Mutant], files: dict[str, list[str]]) -> list[Job]:
            found = {
                module: list(
                    dict.fromkeys(tests.fastest(files[module][:1], 3 * longest) + tests.fastest(files[module], longest))
                )
                for module in modules
            }
            rows = [(mutant, found[mutant.module]) for mutant in chosen]
            return [(mutant, files, tests.failing, tests.limit(files)) for mutant, files in rows if files]

        close = jobs(mutants[: options.limit], tests.close)
        for mutant, outcome in workers.each(close, began + 0.75 * options.seconds, end):
            endings[mutant] = outcome.how
        wider = jobs([mutant for mutant, how in endings.items() if how == "passed"], tests.of_package)
        for mutant, outcome in workers.each(wider, end, end):
            endings[mutant] = "survived" if outcome.how == "passed" else outcome.how
    with options.out.open("w", encoding="utf-8") as out:
        for mutant, how in endings.items():
            out.write(json.dumps({**asdict(mutant), "after": changed(mutant)[1], "ending": how}) + "\n")
    killed = sum(how in ("failed", "timeout") for how in endings.values())
    print(f"{len(mutants)} mutants, {len(endings)} tried, {killed} killed, {len(endings) - killed} not")


def modules_in(paths: Sequence[str]) -> list[str]:
    """The modules that are named, or lie in a folder that is named."""
    given = [path for name in paths for path in (sorted(Path(name).rglob("*.py")) or [Path(name)])]
    return [path.as_posix() for path in given if path.name != "__init__.py"]


if __name__ == "__main__":
    main()
