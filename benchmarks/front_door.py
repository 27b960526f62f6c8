"""The speed of our public calls against the alternatives that users have today: one command, one table.

    python -m benchmarks.front_door                               # every section, on a GPU
    python -m benchmarks.front_door --sections host,decode        # some sections
    python -m benchmarks.front_door --minutes 25                  # start no new case after 25 minutes
    python -m benchmarks.front_door --compile-only 0/14           # fourteen of these in parallel first, to save time
    python -m benchmarks.front_door --table                       # the table of what was measured; measures nothing
    python -m benchmarks.front_door --rehearse                    # tiny sizes on the CPU, to test that every case runs

A case compares our call with rivals that are set up as their own users would do it: scaled_dot_product_attention with
each backend (the fastest one is the rival, and is named), FlexAttention with its block mask, and PyTorch's compiler on
the plain equation. Host time, device time and eager time are separate columns (benchmarks/clocks.py). A ratio is the
rival's time over ours, the median over the turns. Rows are in results/front-door, one file for each section.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import rela
from benchmarks.clocks import Contender, first_line, median, spread, take_turns
from benchmarks.common import facts
from benchmarks.front_door_models import MODELS, model_cases
from rela.attention.norms import GatedRMSNorm
from rela.files import write_text

OURS = "rela"
BACKENDS = {
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Case:
    """One row of the table: how its contenders are made, which time counts, and what it must reach."""

    section: str
    name: str
    make: Callable[[], Mapping[str, Contender]]
    measure: str = "device"
    at_least: float | None = None
    """The rival's time over ours that is wanted."""
    at_most: float | None = None
    """Microseconds of ours that are wanted at most."""
    note: str = ""
    clocks: tuple[str, ...] = ("host", "device", "eager")
    all_compile: bool = False
    """Whether the rivals have something to compile, too."""


@dataclass(frozen=True)
class Row:
    """One contender of one case; times are microseconds, spreads shares of the median."""

    section: str
    case: str
    contender: str
    measure: str
    host: float | None = None
    host_spread: float | None = None
    device: float | None = None
    device_spread: float | None = None
    device_by: str = ""
    eager: float | None = None
    eager_spread: float | None = None
    megabytes: float | None = None
    ratio: float | None = None
    """On our own row, of the measure that counts: the best rival's time over ours."""
    rival: str = ""
    at_least: float | None = None
    at_most: float | None = None
    reached: bool | None = None
    note: str = ""
    error: str = ""


@dataclass(frozen=True)
class Setting:
    """Where the cases run, how large they are and how often they are measured."""

    device: torch.device
    dtype: torch.dtype
    tiny: bool
    turns: int
    milliseconds: float = 20.0
    """How long a contender is measured by each clock in a turn."""

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.tiny else full

    def draw(self, *shape: int, gradient: bool = False) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype).requires_grad_(gradient)

    def heads(self, B: int, H: int, T: int, D: int, gradient: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (self.draw(B, H, T, D, gradient=gradient) for _ in range(3))
        return q, k, v


def softmax_ways(call: Callable[[], object], launches: int = 4) -> dict[str, Contender]:
    """The same call of SDPA as PyTorch would choose, and under each backend."""
    ways = {
        name: Contender(call, partial(sdpa_kernel, backend), launches, one_of_many=True)
        for name, backend in BACKENDS.items()
    }
    return {"SDPA default": Contender(call, launches=launches), **ways}


def with_gradients(way: Callable[[], Tensor], inputs: Sequence[Tensor], d_out: Tensor) -> Callable[[], object]:
    """A call, and the gradients of its inputs."""
    return lambda: torch.autograd.grad(way(), inputs, d_out)


def gradients_alone(ways: Mapping[str, Contender], inputs: Sequence[Tensor], d_out: Tensor) -> dict[str, Contender]:
    """The backward pass of each way whose forward pass runs."""
    made = {}
    for name, way in ways.items():
        try:
            with way.context():
                out = way.call()
            call = partial(torch.autograd.grad, out, inputs, d_out, retain_graph=True)
            call()
        except Exception:  # the forward row says why
            continue
        made[name] = Contender(call, launches=6, one_of_many=way.one_of_many)
    return made


# host time -----------------------------------------------------------------------------------------------------------


def host_cases(setting: Setting) -> Iterator[Case]:
    B, H, D = 2, 8, 64

    def forward(T: int) -> dict[str, Contender]:
        q, k, v = setting.heads(B, H, T, D)
        ours = {OURS: Contender(lambda: rela.attend(q, k, v), torch.no_grad)}
        return ours | {
            "SDPA default": Contender(lambda: F.scaled_dot_product_attention(q, k, v), torch.no_grad),
        }

    def step(T: int) -> dict[str, Contender]:
        q, k, v = setting.heads(B, H, T, D, gradient=True)
        d_out = torch.randn_like(q)
        ways = {OURS: lambda: rela.attend(q, k, v), "SDPA default": lambda: F.scaled_dot_product_attention(q, k, v)}
        return {name: Contender(with_gradients(way, (q, k, v), d_out), launches=12) for name, way in ways.items()}

    def module(kind: str) -> dict[str, Contender]:
        x = setting.draw(2, setting.size(64, 8), 512)
        options = {"batch_first": True, "device": setting.device, "dtype": setting.dtype}
        ours = rela.MultiheadAttention(512, 8, kind=kind, **options).eval()
        theirs = nn.MultiheadAttention(512, 8, **options).eval()
        return {
            OURS: Contender(lambda: ours(x, x, x, need_weights=False), torch.no_grad, 8),
            "nn.MultiheadAttention": Contender(lambda: theirs(x, x, x, need_weights=False), torch.no_grad, 8),
        }

    def norm() -> dict[str, Contender]:
        x = setting.draw(128, 512)
        ours = GatedRMSNorm(512, device=setting.device, dtype=setting.dtype)
        gain = ours.gain.detach()
        return {
            OURS: Contender(lambda: ours(x), torch.no_grad, 2),
            "F.rms_norm": Contender(lambda: F.rms_norm(x, (512,), gain), torch.no_grad, 2),
        }

    for T in (setting.size(64, 4), setting.size(256, 8)):
        yield Case("host", f"attend, no gradient, T={T}", partial(forward, T), "host", at_most=45.0)
    for T in (setting.size(64, 4), setting.size(256, 8)):
        yield Case("host", f"attend, forward + backward, T={T}", partial(step, T), "host", 1 / 1.1)
    for kind in ("rela-g", "softmax"):
        yield Case("host", f"module {kind}, [2, 64, 512], inference", partial(module, kind), "host", 1 / 1.5)
    yield Case("host", "GatedRMSNorm, [128, 512], inference", norm, "host")


# device time ---------------------------------------------------------------------------------------------------------


def dense_ways(setting: Setting, B: int, H: int, T: int, D: int, causal: bool, gradient: bool) -> dict[str, Contender]:
    q, k, v = setting.heads(B, H, T, D, gradient)
    ours = {OURS: Contender(lambda: rela.attend(q, k, v, causal=causal))}
    return ours | softmax_ways(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def dense_step(setting: Setting, B: int, H: int, T: int, D: int, causal: bool) -> dict[str, Contender]:
    q, k, v = setting.heads(B, H, T, D, gradient=True)
    d_out = torch.randn_like(q)

    def softmax() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    ours = {OURS: Contender(with_gradients(lambda: rela.attend(q, k, v, causal=causal), (q, k, v), d_out), launches=9)}
    return ours | softmax_ways(with_gradients(softmax, (q, k, v), d_out), 12)


def dense_backward(setting: Setting, B: int, H: int, T: int, D: int, causal: bool) -> dict[str, Contender]:
    q, k, v = setting.heads(B, H, T, D, gradient=True)
    ways = {OURS: Contender(lambda: rela.attend(q, k, v, causal=causal))}
    ways |= softmax_ways(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    return gradients_alone(ways, (q, k, v), torch.randn_like(q))


def device_cases(setting: Setting) -> Iterator[Case]:
    """32,768 tokens, 8 heads: short and middle lengths, one call on the device alone."""
    H, tokens = 8, setting.size(32768, 16)
    lengths = (8,) if setting.tiny else (128, 256, 512, 1024, 2048)
    for D, causal, T in product((64, 128), (False, True), lengths):
        shape = f"D={D} T={T}{' causal' if causal else ''}"
        size, bar = (max(1, tokens // T), H, T, D, causal), 1.1 if D == 64 else 1.0
        yield Case("device", f"forward {shape}", partial(dense_ways, setting, *size, gradient=False), "device", bar)
        yield Case("device", f"forward + backward {shape}", partial(dense_step, setting, *size), "device", bar)


def eager_cases(setting: Setting) -> Iterator[Case]:
    """256 heads in all, D = 64, as an eager program has them."""
    for T, causal in product((8,) if setting.tiny else (512, 1024, 2048), (False, True)):
        size = (setting.size(16, 2), 16, T, 64, causal)
        shape = f"D=64 T={T}{' causal' if causal else ''}"
        yield Case("eager", f"forward {shape}", partial(dense_ways, setting, *size, gradient=False), "eager", 1.2)
        yield Case("eager", f"backward {shape}", partial(dense_backward, setting, *size), "eager", 1.2)


def head_size_cases(setting: Setting) -> Iterator[Case]:
    for D in (64,) if setting.tiny else (32, 48, 80, 96, 112, 160, 192, 256):
        size = (setting.size(16, 2), 16, setting.size(2048, 8), D, False)
        yield Case("heads", f"forward D={D}", partial(dense_ways, setting, *size, gradient=False), "device", 1.0)
        yield Case("heads", f"backward D={D}", partial(dense_backward, setting, *size), "eager", 1.0)


# decoding ------------------------------------------------------------------------------------------------------------


def decode_ways(setting: Setting, B: int, H: int, Hk: int, S: int, D: int, zeros: float) -> dict[str, Contender]:
    """One query over S keys; θ is chosen so that the share `zeros` of the weights is zero."""
    q, k, v = setting.draw(B, H, 1, D), setting.draw(B, Hk, S, D), setting.draw(B, Hk, S, D)
    scores = q.float().view(B, Hk, H // Hk, D) @ k.float().mT * D**-0.5
    some = scores.view(B, H, S)[..., : min(S, 2**20)]
    threshold = some.quantile(zeros, dim=-1).mean(0)
    position = torch.full((B,), S, dtype=torch.int32, device=setting.device)
    ways = {
        OURS: lambda: rela.attend(q, k, v, threshold=threshold, causal=True),
        "rela with key lengths": lambda: rela.attend(q, k, v, threshold=threshold, key_lengths=position),
    }
    ours = {name: Contender(way, torch.no_grad) for name, way in ways.items()}
    return ours | softmax_ways(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=Hk != H))


def decode_cases(setting: Setting) -> Iterator[Case]:
    shapes = [(4, 8, 8, 64, 1.5), (1, 8, 8, 64, 1.5), (4, 32, 8, 128, 1.2), (1, 32, 8, 128, 1.2)]
    for (B, H, Hk, D, bar), S in product(shapes, (64,) if setting.tiny else (32768, 131072)):
        for zeros, wanted in ((0.9, bar), (0.5, 1.0)):
            name = f"B={B} heads {H} over {Hk} D={D} keys {S} zeros {zeros:.0%}"
            make = partial(decode_ways, setting, B, H, Hk, S, D, zeros)
            yield Case("decode", name, make, "device", wanted)


# masks, biases, intervals --------------------------------------------------------------------------------------------


def masked_inputs(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    return setting.heads(setting.size(8, 2), setting.size(16, 2), setting.size(2048, 8), 64, gradient=True)


def mask_ways(setting: Setting, which: str, learned: bool, backward: bool) -> dict[str, Contender]:
    """A mask [B, 1, T, T] of which two thirds are True, or a position bias [1, H, T, T]."""
    q, k, v = masked_inputs(setting)
    B, H, T, _ = q.shape
    if which == "boolean":
        mask = torch.rand(B, 1, T, T, device=setting.device) < 2 / 3
    elif which == "blocks":
        mask = torch.rand(B, 1, T // 8, T // 8, device=setting.device) < 0.3
        mask = mask.repeat_interleave(8, 2).repeat_interleave(8, 3)
    else:
        mask = setting.draw(1, H, T, T, gradient=learned)
    inputs = (q, k, v, mask) if learned else (q, k, v)
    ways = {OURS: Contender(lambda: rela.attend(q, k, v, mask=mask))}
    ways |= softmax_ways(lambda: F.scaled_dot_product_attention(q, k, v, mask))
    return gradients_alone(ways, inputs, torch.randn_like(q)) if backward else ways


def mask_cases(setting: Setting) -> Iterator[Case]:
    for which, learned in (("boolean", False), ("blocks", False), ("bias", False), ("bias", True)):
        name = which + (" with its gradient" if learned else "")
        for backward in (False, True):
            made = partial(mask_ways, setting, which, learned, backward)
            yield Case("masks", f"{'backward' if backward else 'forward'} {name}", made, "eager", 1.0)


def interval_ways(setting: Setting, limits: Callable[[int, int], dict[str, object]], backward: bool) -> dict:
    """Ours with lengths, starts or a window against SDPA without any: what hides keys must not cost more."""
    q, k, v = masked_inputs(setting)
    given = limits(q.size(0), q.size(2))
    ways = {OURS: Contender(lambda: rela.attend(q, k, v, **given))}
    ways |= softmax_ways(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(given.get("causal"))))
    return gradients_alone(ways, (q, k, v), torch.randn_like(q)) if backward else ways


def interval_cases(setting: Setting) -> Iterator[Case]:
    def spaced(B: int, low: int, high: int) -> Tensor:
        return torch.linspace(low, high, B, device=setting.device).to(torch.int32)

    given: dict[str, Callable[[int, int], dict[str, object]]] = {
        "key lengths": lambda B, T: {"key_lengths": spaced(B, 3 * T // 4, T)},
        "key lengths, causal": lambda B, T: {"key_lengths": spaced(B, 3 * T // 4, T), "causal": True},
        "key starts, causal": lambda B, T: {"key_starts": spaced(B, 0, T // 4), "causal": True},
        "window of 512, causal": lambda B, T: {"window": (min(511, T // 2), 0), "causal": True},
    }
    for (name, limits), backward in product(given.items(), (False, True)):
        made = partial(interval_ways, setting, limits, backward)
        yield Case("intervals", f"{'backward' if backward else 'forward'} {name}", made, "eager", 1.2)


# softmax through our module, the simplex, compilers ------------------------------------------------------------------


def softmax_cases(setting: Setting) -> Iterator[Case]:
    def padded() -> dict[str, Contender]:
        B, T = 4, setting.size(2048, 8)
        x = setting.draw(B, T, 512, gradient=True)
        hidden = torch.arange(T, device=setting.device) >= torch.linspace(T // 2, T, B, device=setting.device)[:, None]
        options = {"batch_first": True, "device": setting.device, "dtype": setting.dtype}
        modules = {
            OURS: rela.MultiheadAttention(512, 8, kind="softmax", **options),
            "nn.MultiheadAttention": nn.MultiheadAttention(512, 8, **options),
        }
        d_out = torch.randn_like(x)

        def step(module: nn.Module) -> Callable[[], object]:
            parameters = [x, *module.parameters()]
            call = partial(module, x, x, x, key_padding_mask=hidden, need_weights=False)
            return lambda: torch.autograd.grad(call()[0], parameters, d_out)

        return {name: Contender(step(module), launches=24) for name, module in modules.items()}

    yield Case("softmax", "module with a padding mask, T=2048, forward + backward", padded, "eager", 1.0)


def simplex_cases(setting: Setting) -> Iterator[Case]:
    def step(kind: str, T: int) -> dict[str, Contender]:
        q, k, v = setting.heads(setting.size(32768 // T, 2), 8, T, 64, gradient=True)
        d_out = torch.randn_like(q)
        ours = with_gradients(lambda: rela.attend(q, k, v, kind=kind), (q, k, v), d_out)
        softmax = with_gradients(lambda: F.scaled_dot_product_attention(q, k, v), (q, k, v), d_out)
        ways = {OURS: Contender(ours, launches=40)} | softmax_ways(softmax, 12)
        try:
            from adasplash import adasplash_v2
        except ImportError:
            return ways
        splash = with_gradients(lambda: adasplash_v2(q, k, v), (q, k, v), d_out)  # 1.5-entmax, causal
        return {**ways, "AdaSplash-2 (causal 1.5-entmax)": Contender(splash, launches=12)}

    for kind, T in product(("sparsemax", "entmax15", "entmax:1.25"), (8,) if setting.tiny else (128, 512, 1024)):
        note = "against softmax, of which attention in a Transformer base wants 0.75 of the whole step"
        yield Case("simplex", f"{kind} T={T}, forward + backward", partial(step, kind, T), "device", None, note=note)


def compiled_cases(setting: Setting) -> Iterator[Case]:
    """relu by other means: the equation under PyTorch's compiler, and FlexAttention with a block mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def plain(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        weights = F.relu(q @ k.mT * q.size(-1) ** -0.5)
        return (weights.tril() if causal else weights) @ v

    def logarithm(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return torch.where(score > 0, score.log(), -float("inf"))

    def flex(q: Tensor, k: Tensor, v: Tensor, blocks: object) -> Tensor:
        """A softmax over log(relu(s)), its normalisation undone by exp(lse)."""
        out, lse = flex_attention(q, k, v, score_mod=logarithm, block_mask=blocks, return_lse=True)
        return out * lse.exp()[..., None].to(out.dtype)

    def made(T: int, causal: bool) -> dict[str, Contender]:
        q, k, v = setting.heads(setting.size(8, 1), 16, T, 64)
        ways = {OURS: Contender(lambda: rela.attend(q, k, v, causal=causal))}
        compiled = plain if setting.tiny else torch.compile(plain)
        ways["torch.compile of the equation"] = Contender(lambda: compiled(q, k, v, causal))
        if not setting.tiny:
            below = create_block_mask(lambda b, h, t, s: t >= s, None, None, T, T, setting.device) if causal else None
            compiled_flex = torch.compile(flex)
            ways["FlexAttention with a block mask"] = Contender(lambda: compiled_flex(q, k, v, below))
        return ways

    for T, causal in product((8,) if setting.tiny else (2048, 4096), (False, True)):
        name, make = f"forward D=64 T={T}{' causal' if causal else ''}", partial(made, T, causal)
        yield Case("compilers", name, make, at_least=1, all_compile=True)


def hugging_face_cases(name: str, setting: Setting) -> Iterator[Case]:
    for case, make in model_cases(name, setting.device, setting.dtype, setting.tiny):
        # the device's share of a whole model is a matter of profiles, which take their time
        yield Case(name, case, make, "eager", 1.0, clocks=("host", "eager"), all_compile=True)


SECTIONS: dict[str, Callable[[Setting], Iterator[Case]]] = {
    "host": host_cases,
    "decode": decode_cases,
    "device": device_cases,
    "eager": eager_cases,
    "masks": mask_cases,
    "intervals": interval_cases,
    "heads": head_size_cases,
    "softmax": softmax_cases,
    "simplex": simplex_cases,
    **{name: partial(hugging_face_cases, name) for name in MODELS},
    "compilers": compiled_cases,
}


def rows_of(case: Case, setting: Setting) -> list[Row]:
    """The rows of one case, ours first; whatever goes wrong becomes a row that says so."""
    empty = Row(
        case.section, case.name, OURS, case.measure, at_least=case.at_least, at_most=case.at_most, note=case.note
    )
    try:
        torch.manual_seed(0)
        contenders = case.make()
        if OURS not in contenders:
            raise RuntimeError("our forward pass failed, so there is no backward pass")
        times, left_out = take_turns(contenders, setting.turns, setting.device, case.clocks, setting.milliseconds)
    except Exception as problem:
        return [replace(empty, error=first_line(problem))]
    # without a GPU there is no device time: the rehearsal counts what there is
    measure = case.measure if setting.device.type == "cuda" else "eager"
    rows = []
    for name, taken in times.items():
        measured: dict[str, float | None] = {}
        for column in ("host", "device", "eager"):
            measured |= {column: median(taken.of(column)), f"{column}_spread": spread(taken.of(column))}
        columns = {"device_by": taken.device_by, "megabytes": taken.megabytes}
        rows.append(replace(empty, contender=name, at_least=None, at_most=None, note="", **columns, **measured))
    rows += [replace(empty, contender=name, at_least=None, at_most=None, error=why) for name, why in left_out.items()]
    if OURS not in times:
        return rows
    ours = times[OURS].of(measure)
    rivals = {
        name: taken.of(measure)
        for name, taken in times.items()
        if not name.startswith(OURS) and len(taken.of(measure)) == len(ours)  # a slow backend has had one turn
    }
    best = min(rivals, key=lambda name: statistics.median(rivals[name]), default="")
    ratio = statistics.median(a / b for a, b in zip(rivals[best], ours, strict=True)) if best else None
    reached = None
    if setting.tiny:
        pass  # a rehearsal reaches nothing
    elif case.at_most is not None:
        reached = statistics.median(ours) <= case.at_most
    elif case.at_least is not None and ratio is not None:
        reached = ratio >= case.at_least
    mine = next(row for row in rows if row.contender == OURS)
    mine = replace(
        mine, ratio=ratio, rival=best, at_least=case.at_least, at_most=case.at_most, reached=reached, note=case.note
    )
    return [mine, *(row for row in rows if row.contender != OURS)]


def shown(row: Row) -> str:
    def cell(value: float | None, width: int = 9) -> str:
        return f"{value:{width}.1f}" if value is not None else " " * (width - 1) + "–"

    verdict = {True: "reached", False: "MISSED", None: ""}[row.reached]
    ratio = f"{row.ratio:5.2f}× of {row.rival}" if row.ratio is not None else ""
    times = f"host {cell(row.host)}  device {cell(row.device)}  eager {cell(row.eager)} µs"
    return f"{row.section:10s} {row.case:46s} {row.contender:28s} {row.error or times}  {ratio}  {verdict}".rstrip()


def write_rows(out: Path, rows: Sequence[Row], device: torch.device) -> None:
    """One file a section, so that a later run of one section leaves the others."""
    out.mkdir(parents=True, exist_ok=True)
    common = facts(device)
    common["gpu"] = common.pop("device")  # which in a row is a time
    for section in dict.fromkeys(row.section for row in rows):
        mine = [json.dumps({**asdict(row), **common}) + "\n" for row in rows if row.section == section]
        write_text(out / f"{section}.jsonl", "".join(mine))


def read_rows(out: Path) -> list[dict]:
    files = [out / f"{section}.jsonl" for section in SECTIONS]
    return [json.loads(line) for path in files if path.exists() for line in path.read_text().splitlines()]


def table(rows: Sequence[Mapping]) -> str:
    """One line a case: our times, the best rival's, the ratio of the time that counts, and the bar."""
    lines = [
        "| section | case | counts | our host | device | eager µs | rival | host | device | eager µs | ratio | bar | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def cells(row: Mapping | None) -> list[str]:
        return ["–" if row is None or row[name] is None else f"{row[name]:.1f}" for name in ("host", "device", "eager")]

    for row in rows:
        if row["contender"] != OURS:
            continue
        if row["error"]:
            lines.append(f"| {row['section']} | {row['case']} | {row['measure']} | {row['error']} |" + " |" * 9)
            continue
        same = (other for other in rows if (other["section"], other["case"]) == (row["section"], row["case"]))
        rival = next((other for other in same if other["contender"] == row["rival"]), None)
        bar = f"≤ {row['at_most']:.0f} µs" if row["at_most"] is not None else ""
        bar = f"≥ {row['at_least']:.2f}" if row["at_least"] is not None else bar
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        verdict = {True: "reached", False: "missed", None: ""}[row["reached"]]
        columns = [row["section"], row["case"], row["measure"], *cells(row), row["rival"], *cells(rival)]
        lines.append("| " + " | ".join([*columns, ratio, bar, verdict]) + " |")
    return "\n".join(lines) + "\n"


def main(setting: Setting, out: Path, sections: Sequence[str], minutes: float) -> list[Row]:
    """Measure the sections one after the other, write the rows after each case; no case begins after `minutes`."""
    begin = time.monotonic()
    rows: list[Row] = []
    for section in sections:
        for case in SECTIONS[section](setting):
            if time.monotonic() - begin > 60 * minutes:
                rows.append(Row(section, case.name, OURS, case.measure, error=f"not begun: {minutes:g} minutes spent"))
                continue
            some = rows_of(case, setting)
            rows += some
            print("\n".join(map(shown, some)), flush=True)
            write_rows(out, rows, setting.device)
            gc.collect()
            if "torch._dynamo" in sys.modules:
                torch._dynamo.reset()  # what was compiled for one case is of no use to the next
            if setting.device.type == "cuda":
                torch.cuda.empty_cache()
    write_rows(out, rows, setting.device)
    counted = [row for row in rows if row.reached is not None]
    failed = sum(bool(row.error) and row.contender == OURS for row in rows)
    print(f"{sum(row.reached is True for row in counted)} of {len(counted)} bars reached, {failed} cases failed; {out}")
    return rows


def compile_part(setting: Setting, sections: Sequence[str], part: int, parts: int, minutes: float) -> None:
    """Compile every `parts`-th case, for the caches of Triton and PyTorch; what takes longest comes first."""
    begin = time.monotonic()
    cases = [case for section in sections for case in SECTIONS[section](setting)]
    # a forward and a backward case share a kernel
    pairs = [[case] for case in cases if case.all_compile]
    rest = [case for case in cases if not case.all_compile]
    pairs += [rest[i : i + 2] for i in range(0, len(rest), 2)]
    for case in (case for pair in sorted(pairs, key=is_quick)[part::parts] for case in pair):
        if time.monotonic() - begin > 60 * minutes:
            return
        try:
            for name, contender in case.make().items():
                if name == OURS or case.all_compile:
                    with contender.context():
                        contender.call()
            print(f"{time.monotonic() - begin:6.1f} s  {case.section} {case.name}", flush=True)
        except Exception as problem:
            print(f"{case.section} {case.name}: {first_line(problem)}", flush=True)
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()


def is_quick(cases: Sequence[Case]) -> bool:
    """Whether these cases leave PyTorch's compiler alone."""
    return not any("compiled" in case.name or "static" in case.name or case.section == "compilers" for case in cases)


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/front-door"), help="folder for the rows")
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--turns", type=int, default=7, help="how often the contenders take turns")
    parser.add_argument(
        "--milliseconds",
        type=float,
        default=20.0,
        help="milliseconds of measurement for each clock, contender and turn",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="start no new case after this many minutes")
    parser.add_argument("--compile-only", metavar="I/N", help="compile the I-th of N parts; measure nothing")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU, to see that every case runs")
    parser.add_argument(
        "--table", action="store_true", help="write table.md of the rows in the folder; measure nothing"
    )
    options = parser.parse_args()
    options.sections = options.sections.split(",")
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"no section is called {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return options


if __name__ == "__main__":
    options = options_of()
    if options.table:
        write_text(options.out / "table.md", table(read_rows(options.out)))
        print((options.out / "table.md").read_text(), end="")
    elif options.rehearse:
        main(Setting(torch.device("cpu"), torch.float32, True, 2, 1.0), options.out, options.sections, options.minutes)
    elif not torch.cuda.is_available():
        raise SystemExit("benchmarks/front_door.py needs a CUDA device, and PyTorch sees none; --rehearse needs none")
    else:
        setting = Setting(torch.device("cuda"), torch.bfloat16, False, options.turns, options.milliseconds)
        if options.compile_only:
            part, parts = map(int, options.compile_only.split("/"))
            compile_part(setting, options.sections, part, parts, options.minutes)
            sys.exit()
        with torch.cuda.stream(torch.cuda.Stream()):  # on which backward passes can be recorded
            main(setting, options.out, options.sections, options.minutes)
