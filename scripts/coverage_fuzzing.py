"""Fuzzing led by coverage: atheris changes a file so that the code that reads it takes ways it has not taken before.

    pip install atheris
    python -m scripts.coverage_fuzzing --seconds 20 --out fuzzing

The files and the calls that read them are those of tests/fuzzing.py. Each has a process of its own, which ends with the
first exception that the command line would show as a traceback; the file that led to it is kept in the folder.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FORMATS = ("html_files", "xml_files", "markdown_files", "gettext_files", "plain_files", "subtitles")
INSTRUMENTED = ["rela", "yaml", "json", "tarfile", "zipfile", "gzip", "html", "xml", "csv"]
"""Packages whose branches atheris counts."""
LAZY = ("yaml", "html.parser", "rela.model.folder", *(f"rela.markup.{format}" for format in FORMATS))
"""What is imported only when a file is read, and has to be imported before."""
LONGEST = 30
"""Seconds that reading a file may take."""
LARGEST = 1 << 16
"""Bytes of a file; they are all small."""


def fuzz(atheris: Any, target: Any, corpus: Path, options: Sequence[str]) -> None:
    """Fuzz one file in this process, which ends then; `corpus` gets every file that took a new way."""
    (corpus / "whole").write_bytes(target.content)
    words = corpus.with_suffix(".words")
    words.write_text(dictionary(target.pieces))
    flags = [f"-dict={words}", f"-max_len={LARGEST}", f"-timeout={LONGEST}", f"-artifact_prefix={corpus}.", *options]
    atheris.Setup(["atheris", *flags, str(corpus)], target.attempt_content)
    atheris.Fuzz()


def dictionary(pieces: Sequence[bytes]) -> str:
    """Pieces that files of a format are made of, as libFuzzer reads them."""
    short = [piece for piece in pieces if len(piece) <= 64]
    return "".join('"' + "".join(f"\\x{byte:02x}" for byte in piece) + '"\n' for piece in short)


def outcome(output: str) -> tuple[int, str]:
    """How many files were read, and what was said at the end if an exception came; else nothing."""
    done = re.search(r"^Done (\d+) runs", output, re.MULTILINE)
    if done:
        return int(done[1]), ""
    counts = re.findall(r"^#(\d+)\t", output, re.MULTILINE)
    return int(counts[-1]) if counts else 0, output[-3000:] or "no output"


def fuzz_in_fork(atheris: Any, make: Any, corpus: Path, options: Sequence[str]) -> tuple[int, str]:
    """The same in a fork of this process; what became of it."""
    corpus.mkdir(parents=True, exist_ok=True)
    log = corpus.with_suffix(".log")
    pid = os.fork()
    if not pid:
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
                fuzz(atheris, make(Path(folder)), corpus, options)
        finally:
            os._exit(1)  # Fuzz itself ends the process
    os.waitpid(pid, 0)
    return outcome(log.read_text(encoding="utf-8", errors="replace"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="of tests/fuzzing.py; all of them without")
    parser.add_argument("--seconds", type=int, default=20, help="for each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzzing"))
    options = parser.parse_args(arguments)
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        for name in LAZY:
            importlib.import_module(name)
        from tests.fuzzing import TARGETS
    flags = [f"-max_total_time={options.seconds}", f"-seed={options.seed}"]
    total, errors = 0, 0
    for name in options.names or TARGETS:
        corpus = options.out / name.replace(" ", "-")
        count, error = fuzz_in_fork(atheris, TARGETS[name], corpus, flags)
        total, errors = total + count, errors + bool(error)
        print(f"{name}: {count} executions, {len(list(corpus.iterdir()))} files {error}".rstrip(), flush=True)
    print(f"all: {total} executions, {errors} errors")


if __name__ == "__main__":
    main()
