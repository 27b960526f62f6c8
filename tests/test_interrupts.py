"""Ctrl-C: a KeyboardInterrupt once, then the end; and what the program makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rela.cli import app
from rela.interrupts import CODE, Interrupts


@pytest.fixture(autouse=True)
def handler():
    """As from a terminal: what a script runs in the background inherits that interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_interrupts_and_the_handler_before_comes_back():
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt), interrupts.listening():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.came
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts = Interrupts()
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
    assert not interrupts.came
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_the_second_ends_the_program_at_once():
    program = """
import signal
from rela.interrupts import Interrupts
with Interrupts().listening():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGINT)
        print("too late")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (CODE, b"", b"")


def test_one_within_an_import_ends_the_program_before_the_import_sees_it(tmp_path):
    """C++ code of an import has no way to pass a KeyboardInterrupt on, and aborts."""
    (tmp_path / "slow_import.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('aborts')\n"
    )
    program = """
import sys
from rela.interrupts import Interrupts
sys.path.append(sys.argv[1])
with Interrupts().listening():
    import slow_import
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (CODE, b"", b"rela: interrupted\n")


def interrupted() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupted_import() -> None:
    """What C code of an import may make of a KeyboardInterrupt."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("numpy.core.multiarray failed to import") from None


@pytest.mark.parametrize("function", [interrupted, interrupted_import])
def test_an_interrupted_command_says_so_and_calls_it_no_error(call, function):
    app.command("interrupted")(function)
    try:
        assert call("interrupted") == (CODE, "", "rela: interrupted\n")
    finally:
        app.registered_commands.pop()


def test_before_and_after_the_command_the_program_ends_as_any_other():
    program = """
import os, signal, sys
class Importer:
    def find_spec(self, name, *rest):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Importer())
from rela.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, env=os.environ)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
