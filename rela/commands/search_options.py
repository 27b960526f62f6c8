"""The options of `rela translate` that say how translations are searched; what is left out is the config's."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rela.config.schema import SAMPLING_OPTIONS

Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")]
LengthPenalty = Annotated[float | None, typer.Option(help="α of ((5 + length) / 6)^α.")]
Sampling = Annotated[bool | None, typer.Option(help="Draw translations at random, or search for the best.")]
Temperature = Annotated[float | None, typer.Option(help="Temperature of sampling; above 1 draws rarer tokens.")]
SamplingSeed = Annotated[int | None, typer.Option(help="Seed of the random numbers of sampling.")]
TopK = Annotated[int | None, typer.Option(help="Draw from this many of the most probable tokens.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the fewest tokens whose probabilities sum to this.")]
MinLength = Annotated[int | None, typer.Option(help="Shortest output, in subwords.")]
NoRepeatNgram = Annotated[int | None, typer.Option(help="No sequence of this many subwords may occur twice.")]
MaxLengthRatio = Annotated[float | None, typer.Option(help="Longest output, as a multiple of the source's subwords.")]
BatchTokens = Annotated[int | None, typer.Option(help="Source tokens decoded together.")]
Precision = Annotated[str | None, typer.Option(help="auto, bf16, fp32 or, on a CPU, int8.")]
DecodeEngine = Annotated[
    str | None, typer.Option(help="auto, graphs (search stays on the GPU) or reference (PyTorch, step by step).")
]


def search_options(given: dict[str, Any], sampling: bool) -> dict[str, Any]:
    """The options that were given; those that only sampling reads are refused without it."""
    options = {name: value for name, value in given.items() if value is not None}
    unused = [f"--{name.replace('_', '-')}" for name in SAMPLING_OPTIONS if name in options]
    if unused and not options.get("sampling", sampling):
        raise ValueError(f"{', '.join(unused)} without effect: only sampling reads it; wanted --sampling too")
    return options
