"""The program itself: its help, its place among programs, and what it makes of errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rela
from rela.cli import COMMANDS, DATA_COMMANDS, app, main, with_one_command
from rela.errors import RunFailed
from rela.terminal import check_format
from tests.commands.cases import shell


def test_python_m_rela_is_rela():
    rela = shutil.which("rela", path=str(Path(sys.executable).parent))
    if rela is None:
        pytest.skip("the package is not installed here")
    one, two = (shell([*start, "data", "list"]) for start in ([rela], [sys.executable, "-m", "rela"]))
    assert (one.returncode, one.stdout, one.stderr) == (two.returncode, two.stdout, two.stderr)
    assert one.returncode == 0
    assert one.stdout


@pytest.mark.parametrize("command", [*COMMANDS, *(f"data {name}" for name in DATA_COMMANDS)])
def test_every_command_explains_itself(call, command):
    code, output, _ = call(*command.split(), "--help")
    assert code == 0
    assert "Usage:" in output
    if command != "data list":
        assert f"rela {command}" in output, "help shows an example"


def test_the_command_that_is_named_is_described_alone():
    assert [command.name for command in with_one_command(["info", "x"]).registered_commands] == ["info"]
    assert len(app.registered_commands) == len(COMMANDS)
    for words in ([], ["--help"], ["data", "list"], ["nonsense"]):
        assert with_one_command(words) is app


def test_the_version_is_told(call):
    assert call("--version") == (0, f"rela {rela.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("rela tr", ["train", "translate"]),
        ("rela data ", ["toy", "list", "get"]),
        ("rela score --to", ["--tokens"]),
    ],
)
def test_a_shell_completes_commands_and_options(capsys, monkeypatch, words, completed):
    monkeypatch.setenv("_RELA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    monkeypatch.setattr(sys, "argv", ["rela"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.split() == completed


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_the_script_of_completion_is_shown(capsys, monkeypatch, shell_name):
    """What `rela --install-completion` writes: it calls the program for what to offer."""
    monkeypatch.setenv("_RELA_COMPLETE", f"source_{shell_name}")
    monkeypatch.setattr(sys, "argv", ["rela"])
    with pytest.raises(SystemExit):
        main()
    assert f"_RELA_COMPLETE=complete_{shell_name}" in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(call):
    code, output, errors = call()
    assert (code, errors) == (2, "")
    assert "translate" in output


def test_a_reader_of_the_help_that_goes_away_is_no_error():
    """As in `rela | head -1`: here the pipe is closed after a first byte."""
    with subprocess.Popen([sys.executable, "-m", "rela"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) in (1, 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk_is_one_line():
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "rela", "data", "list"], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert result.returncode == 2
    assert result.stderr == b"rela: error: No space left on device\n"


def test_errors_have_no_traceback_unless_asked_for(fails):
    fails("info", "nowhere", named="error: nowhere is not a model folder")
    asked = shell([sys.executable, "-m", "rela", "info", "nowhere"], env={"RELA_TRACEBACK": "1"})
    assert b"Traceback" in asked.stderr


# What is shown of an exception


@pytest.fixture
def raising(call):
    """Run a command whose body is the given function: (exit code, stderr)."""
    added = []

    def run(function) -> tuple[int, str]:
        app.command("raising")(function)
        added.append(app.registered_commands[-1])
        code, _, errors = call("raising")
        return code, errors

    yield run
    for command in added:
        app.registered_commands.remove(command)


def wrong_shapes() -> None:
    torch.ones(2) @ torch.ones(3)


def wrong_key() -> None:
    {}["kind"]


def wrong_array() -> None:
    np.ones(2) + np.ones(3)


def wrong_import() -> None:
    from rela.terminal import no_such_name  # noqa: F401


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (wrong_shapes, "RuntimeError: inconsistent tensor size"),
        (wrong_key, "KeyError: 'kind'"),
        (wrong_array, "ValueError: operands could not be broadcast"),
        (wrong_import, "ImportError: cannot import name"),
    ],
)
def test_a_bug_shows_its_traceback_and_says_so(raising, function, named):
    code, errors = raising(function)
    assert code == 1
    assert errors.startswith("Traceback (most recent call last):\n")
    assert f"in {function.__name__}\n" in errors
    assert named in errors
    assert errors.endswith(
        "\nrela: error: this is a bug in rela; please report it with the command and the lines above\n"
    )


def failed_run() -> None:
    raise RunFailed("the loss is\nnot a number")


def missing_extra() -> None:
    import a_package_that_nobody_installed  # noqa: F401


def full_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def full_machine() -> None:
    torch.empty(2**62, dtype=torch.int8)


def bad_value() -> None:
    check_format("xml", "text", "jsonl")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (failed_run, "the loss is not a number"),
        (missing_extra, "No module named 'a_package_that_nobody_installed'"),
        (bad_value, "format is 'xml'; wanted text or jsonl"),
        (full_gpu, "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB. (smaller batches need less: "),
        (full_machine, "out of memory: "),
    ],
)
def test_what_a_user_can_put_right_is_one_line(raising, function, message):
    code, errors = raising(function)
    assert code == 2
    assert errors.startswith(f"rela: error: {message}")
    assert errors.count("\n") == 1


def long_name() -> None:
    check_format("xml" * 20_000, "text", "jsonl")


def test_of_a_very_long_message_beginning_and_end_are_shown(raising):
    _, errors = raising(long_name)
    assert len(errors) < 1100
    assert errors.startswith("rela: error: format is 'xmlxml")
    assert errors.endswith("xml'; wanted text or jsonl\n")


def test_errors_that_end_a_run_on_purpose_have_one_base():
    from rela.training.checkpoint import CheckpointError
    from rela.training.watchdog import TrainingFailed

    assert issubclass(CheckpointError, RunFailed)
    assert issubclass(TrainingFailed, RunFailed)
