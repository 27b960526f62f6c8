"""Fused relu attention against the best softmax kernels: one command, one table.

    python -m benchmarks.attention --out results/attention
    python -m benchmarks.attention --out results/attention --sections dense,decode     # some sections only
    python -m benchmarks.attention --out results/attention --plot                      # draw what was measured

The sections are forward, backward (`compiled` also compares with PyTorch's compiler), row statistics, packed training
batches, decoding, long sequences, tile skipping and AdaSplash-2. The contenders for one shape take turns within one
process, and a ratio is the median of the ratios of the turns. TFLOP/s are calculated from 4·B·H·T·S·D operations
forward and 2.5 times that backward, half when causal, whatever a kernel really computes. Every row of the JSON file has
the device, versions and command.
"""

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.clocks import recorded
from benchmarks.common import facts
from rela.files import write_text
from rela.packing import Packing

OURS = "rela"
ROWS = 2**18  # B · H · T of every dense shape
HEADS = 16
SLEEP = 2_000_000  # cycles, about a millisecond


@dataclass(frozen=True)
class Row:
    """One contender at one shape: what it took, and what share of the ceiling that is."""

    section: str
    shape: str
    contender: str
    milliseconds: float
    spread: float  # between the quartiles, as a share of the median
    tflops: float | None = None
    of_ceiling: float | None = None
    megabytes: float | None = None  # allocated at the peak, over what was there before
    ours_is_faster: float | None = None  # the contender's time over ours, turn by turn
    note: str = ""


@dataclass(frozen=True)
class Run:
    """What is measured, how often, and what a large matmul reaches."""

    sections: Sequence[str]
    quick: bool
    turns: int
    ceiling: float


def recipe() -> dict[str, str]:
    import triton

    return {
        **facts(torch.device("cuda")),
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
    }


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    """Time on the device. It sleeps first, lest the host's share of the first call be counted with the others."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


def take_turns(contenders: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Milliseconds of every contender, turn by turn; one that cannot run is left out and says why."""
    ready, repeats = {}, {}
    for name, function in contenders.items():
        try:
            function()
            once = milliseconds(function, 1)
        except Exception as problem:  # not built, not supported, out of memory: the others still run
            print(f"    {name} left out: {str(problem).strip().splitlines()[0][:100]}", flush=True)
            torch.cuda.empty_cache()
            continue
        ready[name], repeats[name] = function, max(1, min(100, round(10 / once)))
    times: dict[str, list[float]] = {name: [] for name in ready}
    for turn in range(turns):
        # the clock depends on what ran before, so the order changes
        for name in random.Random(turn).sample(list(ready), len(ready)):
            times[name].append(milliseconds(ready[name], repeats[name]))
    return times


def peak_megabytes(function: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def rows_of(
    section: str,
    shape: str,
    contenders: dict[str, Callable[[], object]],
    turns: int,
    flops: float | None = None,
    ceiling: float | None = None,
    note: str = "",
) -> list[Row]:
    times = take_turns(contenders, turns)
    rows = []
    for name, taken in times.items():
        median = statistics.median(taken)
        low, _, high = statistics.quantiles(taken, n=4)
        tflops = flops / median / 1e9 if flops else None
        ratio = None
        if OURS in times and name != OURS:
            ratio = statistics.median(theirs / ours for theirs, ours in zip(taken, times[OURS], strict=True))
        row = Row(
            section,
            shape,
            name,
            median,
            (high - low) / median,
            tflops,
            tflops / ceiling if tflops and ceiling else None,
            peak_megabytes(contenders[name]),
            ratio,
            note,
        )
        rows.append(row)
        show(row)
    return rows


def show(row: Row) -> None:
    cells = [
        f"{row.section:9s} {row.shape:31s} {row.contender:22s} {row.milliseconds:9.4f} ms ± {row.spread:4.0%}",
        f"{row.tflops:6.0f} TFLOP/s {row.of_ceiling:4.0%}" if row.tflops and row.of_ceiling else " " * 19,
        f"{row.megabytes:8.0f} MB" if row.megabytes is not None else "",
        f"{row.ours_is_faster:5.2f}×" if row.ours_is_faster else "",
        row.note,
    ]
    print("  ".join(cells), flush=True)


def matmul_ceiling() -> float:
    """TFLOP/s of a large bfloat16 product of random numbers."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    a @ b
    return 2 * 8192**3 / min(milliseconds(lambda: a @ b, 5) for _ in range(5)) / 1e9


def eager_relu(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    weights = F.relu(q @ k.mT * scale)
    return (weights.tril() if causal else weights) @ v


def flex_relu(q: Tensor, k: Tensor, v: Tensor, scale: float, blocks: object) -> Tensor:
    """FlexAttention's route to relu: a softmax over log(relu(s)), its normalisation undone by exp(lse).

    Causality is in the block mask, so that it skips what lies above the diagonal.
    """
    from torch.nn.attention.flex_attention import flex_attention

    def logarithm(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return torch.where(score > 0, score.log(), -float("inf"))

    out, lse = flex_attention(q, k, v, score_mod=logarithm, block_mask=blocks, scale=scale, return_lse=True)
    return out * lse.exp()[..., None].to(out.dtype)


def block_mask(T: int, causal: bool) -> object:
    """FlexAttention's block mask of a causal call, made once as its users do; None where all is seen."""
    from torch.nn.attention.flex_attention import create_block_mask

    if not causal:
        return None
    return create_block_mask(lambda b, h, t, s: t >= s, None, None, T, T, "cuda")


def softmax_by(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=causal)


def dense_section(D: int, T: int, causal: bool, ceiling: float, turns: int, compiled: bool) -> list[Row]:
    """Forward and backward of every contender at one shape."""
    from rela.kernels.attention.functional import relu_attention

    B = ROWS // HEADS // T
    scale = D**-0.5
    q, k, v = (torch.randn(B, HEADS, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    d_out = torch.randn_like(q)
    ways: dict[str, Callable[..., Tensor]] = {
        OURS: lambda *x: relu_attention(*x, scale=scale, causal=causal),
        "rela, deterministic": lambda *x: relu_attention(*x, scale=scale, causal=causal, deterministic=True),
        "SDPA flash": lambda *x: softmax_by(SDPBackend.FLASH_ATTENTION, *x, scale, causal),
        "SDPA cuDNN": lambda *x: softmax_by(SDPBackend.CUDNN_ATTENTION, *x, scale, causal),
    }
    if compiled and T <= 4096:  # it forms the weights
        torch._functorch.config.donated_buffer = False  # its gradient is taken many times
        eager = torch.compile(eager_relu)
        ways["relu, torch.compile"] = lambda *x: eager(*x, scale, causal)
    forwards = {name: lambda way=way: way(q.detach(), k.detach(), v.detach()) for name, way in ways.items()}
    if compiled:
        flex, blocks = torch.compile(flex_relu), block_mask(T, causal)
        forwards["relu, FlexAttention"] = lambda: flex(q.detach(), k.detach(), v.detach(), scale, blocks)
    backwards = {}
    for name, way in ways.items():
        try:
            out = way(q, k, v)
        except Exception:  # the forward table has said why
            continue
        backwards[name] = lambda out=out: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)
    flops = 4 * ROWS * T * D / (2 if causal else 1)
    shape = f"D={D} T={T}{' causal' if causal else ''}"
    forward_only = {name: way for name, way in forwards.items() if name != "rela, deterministic"}
    rows = rows_of("forward", shape, forward_only, turns, flops, ceiling)
    return rows + rows_of("backward", shape, backwards, turns, 2.5 * flops, ceiling)


def statistics_section(D: int, T: int, causal: bool, turns: int) -> list[Row]:
    """The forward pass with and without row statistics."""
    from rela.kernels.attention.functional import relu_attention, relu_attention_with_statistics

    B = ROWS // HEADS // T
    q, k, v = (torch.randn(B, HEADS, T, D, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    options = {"scale": D**-0.5, "causal": causal}
    ways = {
        OURS: lambda: relu_attention(q, k, v, **options),
        "rela with statistics": lambda: relu_attention_with_statistics(q, k, v, **options),
    }
    return rows_of("statistics", f"D={D} T={T}{' causal' if causal else ''}", ways, turns)


def long_section(T: int, turns: int) -> list[Row]:
    """One sequence of T tokens, 8 heads of 64, causal, forward and backward together: memory must stay linear in T."""
    from rela.kernels.attention.functional import relu_attention

    q, k, v = (torch.randn(1, 8, T, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    d_out = torch.randn_like(q)

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(relu_attention(q, k, v, scale=0.125, causal=True), (q, k, v), d_out)

    note = f"q, k and v take {3 * q.numel() * 2 / 2**20:.0f} MB"
    return rows_of("long", f"D=64 T={T} H=8 causal", {OURS: step}, turns, 7 * 8 * T * T * 64, None, note)


def entmax_section(D: int, T: int, turns: int) -> list[Row]:
    """Forward and backward together against AdaSplash-2, causal 1.5-entmax, whose first call tunes itself."""
    from rela.kernels.attention.functional import relu_attention

    if not find_spec("adasplash"):
        print("    AdaSplash-2 left out: no module named adasplash", flush=True)
        return []
    from adasplash import adasplash_v2

    B = ROWS // HEADS // T
    q, k, v = (torch.randn(B, HEADS, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    d_out = torch.randn_like(q)
    ways = {
        OURS: lambda: relu_attention(q, k, v, scale=D**-0.5, causal=True),
        "AdaSplash-2 (entmax)": lambda: adasplash_v2(q, k, v),
    }
    steps = {name: lambda way=way: torch.autograd.grad(way(), (q, k, v), d_out) for name, way in ways.items()}
    return rows_of("entmax", f"D={D} T={T} causal", steps, turns, 7 * ROWS * T * D, note="forward and backward")


def packed_section(turns: int) -> list[Row]:
    """A training batch of 25,000 packed tokens, forward and backward together."""
    from rela.kernels.attention.functional import relu_attention_packed

    N, H, D = 25000, 8, 64
    lengths = torch.randint(4, 60, (N // 32,), generator=torch.Generator().manual_seed(0))
    cu = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(torch.int32).cuda()
    packing, used = Packing(cu, 60), int(cu[-1])
    q, k, v = (torch.randn(used, H, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    d_out = torch.randn_like(q)
    seed = torch.zeros((), dtype=torch.int64, device="cuda")
    rows = []
    for causal in (False, True):

        def ours(dropout: float, causal: bool = causal) -> Tensor:
            return relu_attention_packed(
                q, k, v, packing, packing, scale=0.125, causal=causal, dropout=dropout, seed=seed
            )

        def varlen(causal: bool = causal) -> Tensor:
            import inspect

            from torch.nn.attention.varlen import varlen_attn

            window = {"window_size": (-1, 0)} if "window_size" in inspect.signature(varlen_attn).parameters else {}
            if not window:
                return varlen_attn(q, k, v, cu, cu, 60, 60, is_causal=causal)
            return varlen_attn(q, k, v, cu, cu, 60, 60, **(window if causal else {}))

        ways = {OURS: lambda: ours(0.0), "rela, dropout 0.1": lambda: ours(0.1), "varlen_attn (softmax)": varlen}
        graphs = {}
        for name, way in ways.items():
            try:
                graphs[name] = recorded(lambda way=way: torch.autograd.grad(way(), (q, k, v), d_out))
            except Exception as problem:
                print(f"    {name} left out: {str(problem).strip().splitlines()[0][:100]}", flush=True)
        shape = f"{used} tokens, 4…59{' causal' if causal else ''}"
        rows += rows_of("packed", shape, graphs, turns, note="forward and backward, CUDA graph")
    return rows


def decode_section(S: int, D: int, density: float, turns: int) -> list[Row]:
    """One new query for each of B sequences against S cached keys, a given share of the weights positive."""
    from rela.kernels.attention.functional import relu_attention_decode

    B, H, scale = 4, 8, D**-0.5
    q = torch.randn(B, H, 1, D, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(B, H, S, D, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    scores = (q.float() @ k.float().mT * scale).flatten(2)
    threshold = scores.quantile(1 - density, dim=-1).mean(0)
    zeros = (scores <= threshold[:, None]).float().mean()
    ways = {
        OURS: lambda: relu_attention_decode(q, k, v, scale=scale, threshold=threshold),
        "SDPA flash": lambda: softmax_by(SDPBackend.FLASH_ATTENTION, q, k, v, scale, False),
        "SDPA cuDNN": lambda: softmax_by(SDPBackend.CUDNN_ATTENTION, q, k, v, scale, False),
        "SDPA math": lambda: softmax_by(SDPBackend.MATH, q, k, v, scale, False),
    }
    graphs = {}
    for name, way in ways.items():
        try:
            graphs[name] = recorded(way)
        except Exception as problem:
            print(f"    {name} left out: {str(problem).strip().splitlines()[0][:100]}", flush=True)
    return rows_of("decode", f"D={D} S={S} B={B} H={H}", graphs, turns, note=f"{zeros:.0%} zeros, CUDA graph")


def skipping_section(D: int, T: int, clustered: bool, turns: int) -> list[Row]:
    """The forward pass with and without the branch around empty tiles, at the same element sparsity."""
    from rela.kernels.attention.forward import forward
    from rela.kernels.attention.problem import Problem
    from rela.kernels.attention.tiles import forward_tiles

    B, H, scale = ROWS // HEADS // T, HEADS, D**-0.5
    q, k, v = (torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    if clustered:  # neighbours look at neighbours: sixteen topics, one after the other
        topics = torch.randn(16, D, device="cuda", dtype=torch.bfloat16).repeat_interleave(T // 16, 0)
        q, k = q + 2 * topics, k + 2 * topics
    scores = q[0, :1].float() @ k[0, :1].float().mT * scale
    threshold = scores.flatten()[::97].quantile(0.95).expand(H).contiguous()
    problem = Problem(q, k, v, threshold, None, None, None, None, None, scale, "relu", False, 0.0)
    tiles = replace(forward_tiles(problem), skip=False)
    positive = scores > threshold[0]
    full = positive.view(1, T // tiles.queries, tiles.queries, T // tiles.keys, tiles.keys).any(4).any(2)
    note = f"zero elements {1 - positive.float().mean():.1%}, empty tiles {1 - full.float().mean():.1%}"
    ways = {
        OURS: lambda: forward(problem, tiles=replace(tiles, skip=True)),
        "rela, no skipping": lambda: forward(problem, tiles=tiles),
    }
    return rows_of("skipping", f"D={D} T={T} {'topics' if clustered else 'random'}", ways, turns, note=note)


SECTIONS = ("dense", "compiled", "statistics", "packed", "decode", "long", "skipping", "entmax")


def plan(run: Run) -> dict[str, list[Callable[[], list[Row]]]]:
    """For each section the calls that measure its shapes; `compiled` adds contenders to a dense one."""
    turns, quick, both = run.turns, run.quick, (False, True)

    def dense(D: int, T: int, causal: bool) -> list[Row]:
        compiled = "compiled" in run.sections and not quick and D == 64 and T == 4096
        return dense_section(D, T, causal, run.ceiling, turns, compiled)

    shapes = product((64, 128), (4096,) if quick else (4096, 16384), both)
    return {
        "dense": [partial(dense, *shape) for shape in shapes],
        "statistics": [partial(statistics_section, D, 4096, causal, turns) for D, causal in product((64, 128), both)],
        "packed": [partial(packed_section, turns)],
        "decode": [partial(decode_section, S, 64, 0.1, turns) for S in ((32768,) if quick else (32768, 131072))],
        "long": [partial(long_section, T, 3) for T in ((131072,) if quick else (32768, 131072))],
        "skipping": [partial(skipping_section, 64, 4096, clustered, turns) for clustered in both],
        "entmax": [] if quick else [partial(entmax_section, 64, 4096, turns)],
    }


def measurements(run: Run) -> Iterator[list[Row]]:
    """The rows of one shape after the other."""
    wanted = {"dense" if section == "compiled" else section for section in run.sections}
    for section, calls in plan(run).items():
        if section in wanted:
            yield from (call() for call in calls)


def main(out: Path, quick: bool = False, turns: int = 11, sections: Sequence[str] = SECTIONS) -> None:
    """Measure the sections, print the table and leave it as JSON rows in the folder `out`."""
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/attention.py needs a CUDA device, and PyTorch sees none")
    unknown = set(sections) - set(SECTIONS)
    if unknown:
        raise SystemExit(f"no section is called {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    ceiling = matmul_ceiling()
    print(f"{torch.cuda.get_device_name()}: a large matmul reaches {ceiling:.0f} TFLOP/s", flush=True)
    rows: list[Row] = []
    for some in measurements(Run(sections, quick, 5 if quick else turns, ceiling)):
        rows += some
        write(out, rows, ceiling)  # after each, so that an interruption costs little
    print(f"{len(rows)} rows in {out / 'attention.jsonl'}")


def plot(out: Path) -> None:
    """Bars of TFLOP/s for the dense shapes, read from the rows in `out`; needs no GPU."""
    from matplotlib.patches import Patch

    from rela.plots.style import PALETTE, new_figure, save_figure

    rows = [json.loads(line) for line in (out / "attention.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["tflops"] and row["section"] in ("forward", "backward")]
    colors = dict(zip(dict.fromkeys(row["contender"] for row in rows), PALETTE, strict=False))
    figure = new_figure(height=4.6)
    for axes, section in zip(figure.subplots(2, 1), ("forward", "backward"), strict=True):
        here = [row for row in rows if row["section"] == section]
        shapes = list(dict.fromkeys(row["shape"] for row in here))
        for j, shape in enumerate(shapes):
            bars = [row for row in here if row["shape"] == shape]
            for i, row in enumerate(bars):
                place = j + (i - (len(bars) - 1) / 2) * 0.16
                axes.bar(place, row["tflops"], 0.16, color=colors[row["contender"]])
        axes.axhline(rows[0]["ceiling_tflops"], color="grey", linewidth=0.8, linestyle=":")  # a large matmul
        labels = [shape.replace(" T", "\nT").replace(" causal", "\ncausal") for shape in shapes]
        axes.set_xticks(range(len(shapes)), labels, fontsize=6)
        axes.set_ylabel(f"{section}, TFLOP/s", fontsize=8)
        axes.tick_params(axis="y", labelsize=7)
    swatches = [Patch(color=color, label=name) for name, color in colors.items()]
    figure.legend(handles=swatches, fontsize=7, ncols=3, loc="outside upper center", frameon=False)
    for path in save_figure(figure, out / "attention"):
        print(path)


def write(out: Path, rows: list[Row], ceiling: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    common = {"ceiling_tflops": ceiling, **recipe()}
    write_text(out / "attention.jsonl", "".join(json.dumps({**asdict(row), **common}) + "\n" for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/attention"), help="folder for attention.jsonl")
    parser.add_argument("--quick", action="store_true", help="few shapes, few turns, nothing compiled: under a minute")
    parser.add_argument("--turns", type=int, default=11, help="how often the contenders take turns")
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--plot", action="store_true", help="draw the rows that are in the folder; measure nothing")
    options = parser.parse_args()
    if options.plot:
        plot(options.out)
    else:
        main(options.out, options.quick, options.turns, options.sections.split(","))
