"""Time every kernel with several tile sizes: the measurements behind the rules in rela/kernels/attention/tiles.py.

python -m benchmarks.attention_tiles            # on the GPU, about two minutes
python -m benchmarks.attention_tiles --simplex  # the kernels of sparsemax and entmax instead
python -m benchmarks.attention_tiles --heads    # head sizes other than 64 and 128, and the gradient of a bias
python -m benchmarks.attention_tiles --part 0/8 --compile-only   # eight of these in parallel first, to save time
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from triton.testing import do_bench

from rela.kernels.attention.backward import planned_keys, planned_queries
from rela.kernels.attention.bias import bias_gradient
from rela.kernels.attention.forward import forward
from rela.kernels.attention.problem import Problem
from rela.kernels.attention.simplex import simplex_forward
from rela.kernels.attention.simplex_backward import key_gradients, query_gradients
from rela.kernels.attention.tiles import Tiles
from rela.packing import Packing

FORWARD = [(128, 128, 4, 3), (128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (64, 128, 4, 3)]
QUERIES = [(128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)]
KEYS = [(64, 128, 8, 2), (64, 128, 8, 3), (32, 128, 4, 3), (64, 64, 4, 2), (128, 128, 8, 2), (64, 128, 4, 2)]
SHORT = [(32, 32, 2, 2), (32, 32, 4, 2), (64, 32, 4, 2), (32, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 1), (16, 32, 2, 2)]
LARGE_FORWARD = [
    (64, 32, 4, 2), (64, 64, 4, 2), (64, 64, 8, 2), (128, 32, 8, 2), (128, 64, 8, 2), (128, 64, 8, 3), (128, 32, 8, 3),
]  # fmt: skip
LARGE_QUERIES = [(64, 32, 8, 2), (64, 64, 8, 2), (64, 32, 4, 2), (128, 32, 8, 2), (128, 32, 8, 1), (64, 64, 8, 1)]
LARGE_KEYS = [(32, 64, 8, 2), (64, 64, 8, 1), (64, 64, 8, 2), (32, 128, 8, 1), (32, 128, 8, 2), (32, 64, 4, 2)]
BIAS = [(64, 64, 4, 2), (128, 64, 4, 2), (128, 64, 8, 2), (64, 128, 4, 2), (128, 128, 8, 2), (128, 128, 8, 1)]
SIMPLEX = [
    (16, 128, 1, 1), (32, 64, 2, 1), (32, 64, 4, 1), (32, 128, 4, 1), (32, 128, 4, 2), (64, 64, 4, 1), (64, 64, 4, 2),
    (64, 128, 4, 1), (64, 128, 4, 2), (64, 128, 8, 2), (128, 64, 8, 2), (16, 512, 8, 1),
]  # fmt: skip
SIMPLEX_KEYS = [(32, 32, 4, 1), (32, 32, 4, 2), (32, 64, 4, 1), (32, 64, 4, 2), (64, 64, 4, 2), (64, 128, 8, 2)]


def dense(D: int, causal: bool, B: int = 4, T: int = 4096, H: int = 16) -> Problem:
    q, k, v = (x.transpose(1, 2) for x in torch.randn(B, T, 3, H, D, device="cuda", dtype=torch.bfloat16).unbind(2))
    return Problem(q, k, v, None, None, None, None, None, None, D**-0.5, "relu", causal, 0.0)


def translation(causal: bool, activation: str = "relu", N: int = 25000, H: int = 8, D: int = 64) -> Problem:
    """About 25,000 tokens of sentences of 4 to 60 tokens, packed, as one training batch has them."""
    lengths = torch.randint(4, 60, (N // 32,), generator=torch.Generator().manual_seed(0))
    cu = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(torch.int32).cuda()
    packing = Packing(cu, 60)
    q, k, v = (x.transpose(0, 1)[None] for x in torch.randn(N, 3, H, D, device="cuda", dtype=torch.bfloat16).unbind(1))
    seed = torch.zeros((), dtype=torch.int64, device="cuda")
    return Problem(q, k, v, None, None, None, packing, packing, seed, D**-0.5, activation, causal, 0.1)


def simplex_trials() -> Iterator[tuple[str, Tiles, Callable[[], object]]]:
    """The same for the kernels of sparsemax and entmax: a training batch, and rows of 512 keys."""
    problems = [("packed causal", translation(True, "entmax15"))]
    problems += [("T=512", replace(dense(64, False, 64, 512, 8), activation="entmax15", memo={}))]
    for name, problem in problems:
        d_out = torch.randn_like(problem.q)
        levels = simplex_forward(problem)[1]
        for tiles in (Tiles(*sizes) for sizes in SIMPLEX):
            yield f"{name} forward", tiles, lambda p=problem, t=tiles: simplex_forward(p, t)
        for tiles in (Tiles(*sizes) for sizes in SIMPLEX):
            yield f"{name} dq", tiles, lambda p=problem, r=levels, d=d_out, t=tiles: query_gradients(p, r, d, t)
        for tiles in (Tiles(*sizes) for sizes in SIMPLEX_KEYS):
            centres = torch.zeros_like(levels[0])
            yield (
                f"{name} dk dv",
                tiles,
                lambda p=problem, r=levels, d=d_out, c=centres, t=tiles: key_gradients(p, r, d, c, t),
            )


def head_trials() -> Iterator[tuple[str, Tiles, Callable[[], object]]]:
    """The same for head sizes of neither 64 nor 128, and the gradient of a bias that batch elements share."""
    lists = {96: (FORWARD, QUERIES, KEYS), 256: (LARGE_FORWARD, LARGE_QUERIES, LARGE_KEYS)}
    for D, (forwards, queries, keys) in lists.items():
        problem = dense(D, False, 4, 2048)
        d_out = torch.randn_like(problem.q)
        for tiles in (Tiles(*sizes) for sizes in forwards):
            yield f"D={D} forward", tiles, lambda p=problem, t=tiles: forward(p, tiles=t)
        for tiles in (Tiles(*sizes) for sizes in queries):
            yield f"D={D} dq", tiles, lambda p=problem, d=d_out, t=tiles: planned_queries(p, t)(p, d)
        for tiles in (Tiles(*sizes) for sizes in keys):
            yield f"D={D} dk dv", tiles, lambda p=problem, d=d_out, t=tiles: planned_keys(p, t, False)(p, d)
    for D in (64, 128):
        problem = dense(D, False, 4, 2048)
        problem.mask = torch.randn(1, 16, 2048, 2048, device="cuda", dtype=torch.bfloat16)
        d_out = torch.randn_like(problem.q)
        for tiles in (Tiles(*sizes) for sizes in BIAS):
            yield f"D={D} gradient of a bias", tiles, lambda p=problem, d=d_out, t=tiles: bias_gradient(p, d, t)


def trials() -> Iterator[tuple[str, Tiles, Callable[[], object]]]:
    """A name, tiles and what to time."""
    problems = [(f"D={D} causal={causal}", dense(D, causal), False) for D in (64, 128) for causal in (False, True)]
    problems += [(f"packed causal={causal}", translation(causal), True) for causal in (False, True)]
    for name, problem, short in problems:
        d_out = torch.randn_like(problem.q)
        for tiles in (Tiles(*sizes) for sizes in (SHORT if short else FORWARD)):
            yield f"{name} forward", tiles, lambda p=problem, t=tiles: forward(p, tiles=t)
        for tiles in (Tiles(*sizes) for sizes in (SHORT if short else QUERIES)):
            yield f"{name} dq", tiles, lambda p=problem, d=d_out, t=tiles: planned_queries(p, t)(p, d)
        for atomic in (False, True):
            for tiles in (Tiles(*sizes) for sizes in (SHORT if short else KEYS)):
                kernel = f"{name} {'one pass' if atomic else 'dk dv'}"
                yield kernel, tiles, lambda p=problem, d=d_out, t=tiles, a=atomic: planned_keys(p, t, a)(p, d)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="0/1", help="i/n: only every n-th trial, beginning with i")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--simplex", action="store_true", help="time the kernels of sparsemax and entmax")
    parser.add_argument("--heads", action="store_true", help="time head sizes 96 and 256, and a bias' gradient")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    times: dict[str, list[tuple[float, Tiles]]] = {}
    chosen = simplex_trials if options.simplex else head_trials if options.heads else trials
    for i, (name, tiles, trial) in enumerate(chosen()):
        if i % parts != part:
            continue
        try:
            trial()
            if not options.compile_only:
                times.setdefault(name, []).append((do_bench(trial, warmup=5, rep=30, return_mode="median"), tiles))
        except Exception as problem:  # too many registers or too much shared memory is an answer, too
            print(f"{name} {tiles}: {type(problem).__name__}")
    for name, rows in times.items():
        print(name)
        for milliseconds, tiles in sorted(rows, key=lambda row: row[0]):
            print(f"  {milliseconds:8.4f} ms  {tiles.queries}x{tiles.keys}, {tiles.warps} warps, {tiles.stages} stages")


if __name__ == "__main__":
    main()
