"""The log of a training run: a JSONL file, TensorBoard, and a line in the terminal."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rela.files import naming

BLOCK = 1 << 16


class TrainingLog:
    """Writes one JSON object a line to `directory`/log.jsonl, and the same numbers to TensorBoard if it is installed.

    On a terminal the line of progress is overwritten by the next; where stderr is a file, each is a line of its own.
    """

    def __init__(self, directory: Path, total: int, tensorboard: bool, quiet: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        cut_torn_row(directory / "log.jsonl")
        self.file = open(directory / "log.jsonl", "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self.board = open_tensorboard(directory / "tensorboard") if tensorboard else None
        self.total, self.quiet = total, quiet
        self.live = sys.stderr.isatty() and not quiet

    def write(self, event: str, step: int, **values: Any) -> None:
        """Record an event with its numbers."""
        # JSON has no NaN and no infinity.
        values = {
            name: None if value in (math.inf, -math.inf) or value != value else value for name, value in values.items()
        }
        row = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        with naming(Path(self.file.name)):
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self.board.add_scalar(f"{event}/{name}", value, step)

    def train(
        self,
        step: int,
        loss: float,
        nll: float,
        rate: float,
        tokens_per_second: float,
        seconds_left: float,
        **more: float,
    ) -> None:
        """One line of progress: loss, speed, and the time left; `more` numbers are only recorded."""
        self.write("train", step, loss=loss, nll=nll, learning_rate=rate, tokens_per_second=tokens_per_second, **more)
        text = (
            f"step {step:>{len(str(self.total))}}/{self.total}  loss {loss:.3f}  nll {nll:.3f}  lr {rate:.2e}  "
            f"{tokens_per_second:,.0f} tokens/s  {clock(seconds_left)} left"
        )
        if self.live:
            print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)
        elif not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            print(f"\r\x1b[2K{text}" if self.live else text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the files."""
        if self.live:
            print(file=sys.stderr)
        self.file.close()
        if self.board is not None:
            self.board.close()


class Meter:
    """Sums since the last report: loss and negative log-likelihood, their tokens, and the seconds of training."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.sums.zero_()
        self.tokens, self.since = 0, time.monotonic()

    def add(self, sums: Tensor, tokens: int) -> None:
        """Count a step: its [loss, nll], and the tokens of all processes that they are sums over."""
        self.sums += sums
        self.tokens += tokens

    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / (time.monotonic() - self.since)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within this, time does not count: validation and saving are not training speed."""
        began = time.monotonic()
        yield
        self.since += time.monotonic() - began


def peak_memory(device: torch.device) -> float | None:
    """GiB of GPU memory this process has needed at most, or None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None


def cut_torn_row(path: Path) -> None:
    """Cut off a last row without its line end, which a killed process or a full disk left."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        kept = end
        while kept > 0:
            start = max(kept - BLOCK, 0)
            file.seek(start)
            found = file.read(kept - start).rfind(b"\n")
            kept = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
        if kept < end:
            file.truncate(kept)


def open_tensorboard(directory: Path) -> Any:
    """A TensorBoard writer, or None where the package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(directory))


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
