"""What the programs of this folder share: a user's mistake is one line, and a bug a traceback, as in `rela` itself."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rela.cli import describe, is_expected
from rela.commands.outputs import check_writable

OURS = ("rela", "experiments", "__main__")


def run(main: Callable[[], object]) -> int:
    """Run a program; its exit code."""
    try:
        main()
    except KeyboardInterrupt:
        print("experiments: interrupted; the same command goes on", file=sys.stderr)
        return 130
    except Exception as error:
        failed = isinstance(error, subprocess.CalledProcessError)  # a program that has said why
        if os.environ.get("RELA_TRACEBACK") or not (failed or is_expected(error, OURS)):
            raise
        print(f"experiments: {describe(error)}", file=sys.stderr)
        return 2
    return 0


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}; wanted a whole number, at least {least}")
        return value

    return number


def named(text: str) -> str:
    """The type of an option of the form NAME=VALUE."""
    name, _, value = text.partition("=")
    if not (name and value):
        raise argparse.ArgumentTypeError(f"{text!r}; wanted NAME= and what it is")
    return text


def check_output(path: Path | None) -> None:
    """Make the folder of an output, or refuse it, before the work is done."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(path)
