"""What a run says of itself: a JSONL file, TensorBoard, and a live line in the terminal."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


class Journal:
    """Writes one JSON object a line to `directory`/log.jsonl, and the same numbers to TensorBoard if it is installed.

    On the terminal the training line renews itself; where stderr is a file, each becomes a line of its own.
    """

    def __init__(self, directory: Path, total: int, tensorboard: bool, quiet: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.file = open(directory / "log.jsonl", "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self.board = open_tensorboard(directory / "tensorboard") if tensorboard else None
        self.total, self.quiet = total, quiet
        self.live = sys.stderr.isatty() and not quiet

    def write(self, event: str, step: int, **values: Any) -> None:
        """Record an event with its numbers."""
        values = {name: None if value != value else value for name, value in values.items()}  # JSON has no NaN
        row = {"event": event, "step": step, "time": round(time.time(), 3), **values}
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
        memory: float | None,
    ) -> None:
        """One line of progress: loss, speed, and the time left; `memory` is the GPU's peak in GiB."""
        gpu = {} if memory is None else {"peak_memory_gib": round(memory, 3)}
        self.write("train", step, loss=loss, nll=nll, learning_rate=rate, tokens_per_second=tokens_per_second, **gpu)
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
        if self.live:
            print(file=sys.stderr)
        self.file.close()
        if self.board is not None:
            self.board.close()


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
