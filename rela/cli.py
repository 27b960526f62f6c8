"""The command line: one table of subcommands, thin over the library.

Heavy imports, PyTorch among them, happen inside the commands: `rela --help` waits for none of them.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

try:
    import typer
except ImportError:
    print(
        "rela: error: the command line needs the toolkit's packages: pip install 'rela-attention[mt]'", file=sys.stderr
    )
    raise SystemExit(2) from None

import rela
from rela.commands import align, check, export, filtering, learn, look, serve, share, translate
from rela.commands.old_names import renew
from rela.errors import RunFailed, with_extra
from rela.files import final_name
from rela.interrupts import Interrupts
from rela.terminal import end_interrupted, fail, reopen_closed_streams

LONGEST_LINE = 1000
SMALLER = "(smaller batches need less: --batch-tokens of translate, --set train.accumulate=4 of train)"

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": learn.demo,
    "prepare": learn.prepare,
    "config": learn.config,
    "train": learn.train,
    "average": learn.average,
    "translate": translate.translate,
    "score": translate.score,
    "evaluate": translate.evaluate,
    "info": translate.info,
    "export": export.export,
    "analyse": look.analyse,
    "plot": look.plot,
    "curves": learn.curves,
    "explore": look.explore,
    "serve": serve.serve,
    "fit-aligner": align.fit_aligner,
    "align": align.align,
    "aer": align.aer,
    "check": check.check,
    "filter": filtering.filter_pairs,
    "convert": share.convert,
    "card": share.card,
}
DATA_COMMANDS: dict[str, Callable[..., None]] = {
    "toy": learn.data_toy,
    "list": learn.data_list,
    "get": learn.data_get,
}

app = typer.Typer(
    name="rela",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(asked: bool) -> None:
    if asked:
        print(f"rela {rela.__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Rectified linear attention (ReLA): train, translate, measure and look inside."""


data_app = typer.Typer(help="Corpora: the embedded one, and public ones to download.", no_args_is_help=True)
app.add_typer(data_app, name="data")
for name, command in COMMANDS.items():
    app.command(name)(command)
for name, command in DATA_COMMANDS.items():
    data_app.command(name)(command)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what a user can put right is one line on stderr and exit code 2, a bug is a traceback and 1."""
    interrupts = Interrupts()
    with interrupts.listening():
        try:
            set_up_streams()
            words = renew(sys.argv[1:] if arguments is None else arguments)
            code = with_one_command(words)(words, prog_name="rela", standalone_mode=False)
            sys.stdout.flush()  # here, where a reader that went away is dealt with
        except SystemExit:
            raise
        except BaseException as error:
            # An import that is interrupted may raise anything.
            if isinstance(error, KeyboardInterrupt) or (interrupts.came and not os.environ.get("RELA_TRACEBACK")):
                flush_or_abandon()
                end_interrupted()
            if not isinstance(error, Exception):
                raise
            give_up(error)
        if code == 130:  # what typer makes of Ctrl-C
            end_interrupted()
        raise SystemExit(code if isinstance(code, int) else 0)


def with_one_command(words: list[str]) -> typer.Typer:
    """The application with the one command that is named; with all if none is. To describe them all takes a while."""
    named = [command for command in app.registered_commands if words[:1] == [command.name]]
    if not named:
        return app
    one = copy.copy(app)
    one.registered_commands, one.registered_groups = named, []
    return one


def set_up_streams() -> None:
    """Text is UTF-8 here, whatever the locale says; a file name that is not is printed byte for byte, or escaped."""
    reopen_closed_streams()
    warnings.showwarning = lambda message, *_: print(f"rela: warning: {one_line(message)}", file=sys.stderr)
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def give_up(error: Exception) -> NoReturn:
    """End the program because of an exception."""
    if hasattr(error, "format_message"):  # the command line itself was wrong
        if type(error).__name__ == "NoArgsIsHelpError":
            with contextlib.suppress(BrokenPipeError):  # `rela | head`
                print(error.format_message())
            flush_or_abandon()
            raise SystemExit(2) from None
        fail(one_line(error.format_message()))
    if os.environ.get("RELA_TRACEBACK"):
        raise error
    if isinstance(error, BrokenPipeError):  # the reader of our output went away: `rela translate … | head`
        flush_or_abandon()
        raise SystemExit(1) from None
    if type(error).__name__ == "Abort":  # what older releases of typer make of Ctrl-C
        end_interrupted()
    if isinstance(error, OSError):  # which may be a full disk behind stdout
        flush_or_abandon()
    if is_out_of_memory(error):
        fail(f"out of memory: {one_line(error) or 'no more on this machine'} {SMALLER}")
    if is_expected(error):
        fail(describe(error))
    traceback.print_exception(error)
    fail("this is a bug in rela; please report it with the command and the lines above", code=1)


def is_expected(error: Exception, ours: Sequence[str] = ("rela",)) -> bool:
    """Whether an exception is raised on purpose, by one of our packages, for something a user can put right."""
    if isinstance(error, ImportError):
        return (error.name or "").split(".")[0] != "rela"  # an extra is not installed
    if type(error) is ValueError:
        return raised_in(ours, error)  # and not by a library that we called wrongly
    return isinstance(error, (RunFailed, ValueError, OSError))


def raised_in(packages: Sequence[str], error: Exception) -> bool:
    """Whether an exception comes from the code of one of these packages."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module: str = frame.f_globals.get("__name__", "")
    return module.split(".")[0] in packages


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, of the GPU or of the machine."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch's, which is not imported for its name
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def flush_or_abandon() -> None:
    """Write what is left to say; what cannot be written is thrown away, or Python would try once more when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        void = os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, sys.stdout.fileno())
        os.close(void)


def describe(error: Exception) -> str:
    """An exception in one line."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # of two, the one a finished file was to be renamed to
        return one_line(f"{final_name(os.fsdecode(name))}: {error.strerror}") if name else error.strerror
    if isinstance(error, ImportError):
        return one_line(with_extra(error))
    return one_line(error) or type(error).__name__


def one_line(message: object) -> str:
    """A message without line ends; of a very long one, such as a file's content, the beginning and the end."""
    line = " ".join(str(message).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 200]} … {line[-200:]}"


if __name__ == "__main__":
    main()
