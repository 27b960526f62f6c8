"""Attention on a CPU: `rela.attend` against PyTorch's softmax kernel and against the reference, in one process.

    python -m benchmarks.attention_cpu --out results
    python -m benchmarks.attention_cpu --threads 1 --out results

Each contender has a turn in every round, and ratios are medians over rounds. With one thread the times are CPU times,
which other programs disturb little. Queries, keys and values are laid out as models have them, heads last in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import rela
from benchmarks.common import facts
from rela.files import write_text

SHAPES = ((8, 8, 128, 64), (4, 8, 512, 64), (1, 8, 2048, 64), (1, 8, 4096, 64), (1, 8, 2048, 128))
TYPES = (torch.float32, torch.bfloat16)
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--longest", type=int, default=4096, help="leave out longer sequences")
    parser.add_argument("--out", type=Path, help="folder for the rows")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    rows = []
    shapes = [shape for shape in SHAPES if shape[2] <= options.longest]
    for case in product(shapes, TYPES, ("", "causal", "padded"), (False, True)):
        rows.append(measured(*case, options.rounds, clock))
        print(" ".join(str(value) for value in rows[-1].values()), flush=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        written = facts(torch.device("cpu")) | {"threads": options.threads, "rows": rows}
        name = "attention-cpu-one-thread.json" if options.threads == 1 else "attention-cpu.json"
        write_text(options.out / name, json.dumps(written, indent=1) + "\n")


def measured(
    shape: tuple[int, int, int, int],
    kind: torch.dtype,
    limit: str,
    gradient: bool,
    rounds: int,
    clock: Callable[[], float],
) -> dict[str, Any]:
    """One row: milliseconds of each contender, and ours as a multiple of the speed of the others."""
    seconds: dict[str, list[float]] = {}
    contenders = calls(shape, kind, limit, gradient)
    for turn in range(rounds + 1):
        for name, call in contenders.items():
            started = clock()
            call()
            if turn:  # the first only warms up
                seconds.setdefault(name, []).append(clock() - started)
    row: dict[str, Any] = dict(zip("BHTD", shape, strict=True))
    row |= {"type": str(kind).removeprefix("torch."), "limit": limit or "none"}
    row["pass"] = "forward and backward" if gradient else "forward"
    row |= {f"{name} ms": round(1000 * statistics.median(times), 3) for name, times in seconds.items()}
    for rival in ("SDPA", "reference"):
        ratios = sorted(theirs / mine for theirs, mine in zip(seconds[rival], seconds["rela"], strict=True))
        row[f"{rival} / rela"] = round(statistics.median(ratios), 2)
        row[f"{rival} / rela, quartiles"] = [round(q, 2) for q in statistics.quantiles(ratios, n=4)[::2]]
    return row


def calls(shape: tuple[int, int, int, int], kind: torch.dtype, limit: str, gradient: bool) -> dict[str, Call]:
    """What each contender calls; half of the keys of every second sentence are padding where `limit` says so."""
    torch.manual_seed(0)
    B, H, T, D = shape
    q, k, v = (torch.randn(B, T, H, D, dtype=kind).transpose(1, 2).requires_grad_() for _ in range(3))
    d_out = torch.randn(B, T, H, D, dtype=kind).transpose(1, 2)
    causal = limit == "causal"
    lengths = torch.full((B,), T) if limit == "padded" else None
    mask = None
    if lengths is not None:
        lengths[::2] //= 2
        mask = (torch.arange(T) < lengths[:, None])[:, None, None]

    def ours(backend: str) -> Tensor:
        return rela.attend(q, k, v, causal=causal, key_lengths=lengths, backend=backend)

    functions: dict[str, Callable[[], Tensor]] = {
        "rela": lambda: ours("auto"),
        "reference": lambda: ours("reference"),
        "SDPA": lambda: F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal),
    }
    return {name: passes(function, (q, k, v), d_out, gradient) for name, function in functions.items()}


def passes(function: Callable[[], Tensor], inputs: tuple[Tensor, ...], d_out: Tensor, gradient: bool) -> Call:
    if gradient:
        return lambda: torch.autograd.grad(function(), inputs, d_out)

    def forward() -> Tensor:
        with torch.no_grad():
            return function()

    return forward


if __name__ == "__main__":
    main()
