"""Races in shared memory: small calls of the fused kernels under compute-sanitizer's racecheck, on a GPU.

    python -m scripts.racecheck --seconds 85 --processes 8 --out races

Each case runs in a process of its own, first without the tool, which compiles its kernels, then with it. A case that
does not end in its time is reported as such, and takes nothing from the others. The first one has a race on purpose:
where the tool does not find it, the rest says nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor

TOOLS = ("/usr/local/cuda-13.0/bin/compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
LENGTHS = [33, 1, 70]
CONTROL = "a race"


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers, made on the CPU: the tool has then no kernel to watch but ours."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype).to(device)


def backward(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The output and the gradients of all inputs."""
    leaves = [x.requires_grad_() for x in inputs]
    out = function(*leaves)
    torch.autograd.grad(out, leaves, draw(*out.shape, dtype=out.dtype))


def dense(T: int, S: int, D: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries of two heads, keys and values of one."""
    return [draw(1, 2, T, D, dtype=dtype), draw(1, 1, S, D, dtype=dtype), draw(1, 1, S, D, dtype=dtype)]


def relu(dtype: torch.dtype, deterministic: bool = False) -> None:
    from rela.kernels.attention.functional import relu_attention

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return relu_attention(q, k, v, scale=0.125, causal=True, deterministic=deterministic)

    backward(attend, *dense(65, 70, 32, dtype))


def relu_on_hopper(dtype: torch.dtype) -> None:
    """Long and wide enough for the Hopper kernels, in half precision."""
    from rela.kernels.attention.functional import relu_attention

    backward(lambda q, k, v: relu_attention(q, k, v, scale=0.125, causal=True), *dense(130, 140, 64, dtype))


def relu_packed(dtype: torch.dtype) -> None:
    from rela.kernels.attention.functional import relu_attention_packed
    from rela.packing import Packing

    q, k, v = (draw(sum(LENGTHS), heads, 32, dtype=dtype) for heads in (2, 1, 1))
    packing = Packing(torch.tensor([0, *LENGTHS], device=q.device).cumsum(0).to(torch.int32), max(LENGTHS))
    backward(lambda q, k, v: relu_attention_packed(q, k, v, packing, packing, scale=0.125), q, k, v)


def simplex(dtype: torch.dtype, activation: str) -> None:
    from rela.kernels.attention.functional import simplex_attention

    inputs = dense(33, 40, 32, dtype)
    backward(lambda q, k, v: simplex_attention(q, k, v, scale=0.125, activation=activation), *inputs)


def decode(dtype: torch.dtype, S: int, D: int) -> None:
    from rela.kernels.attention.functional import relu_attention_decode

    relu_attention_decode(*dense(1, S, D, dtype), scale=0.125)


def rms_norm(dtype: torch.dtype) -> None:
    from rela.kernels.layers.rms_norm import rms_norm

    z, gain, gate = draw(50, 96, dtype=dtype), draw(96, dtype=dtype), draw(96, dtype=dtype)
    backward(lambda z, gain, gate: rms_norm(z, gain, gate, 1e-6), z, gain, gate)


def residual_norm(dtype: torch.dtype) -> None:
    from rela.kernels.layers.residual_norm import residual_norm

    rows, parameters = [draw(50, 96, dtype=dtype) for _ in range(2)], [draw(96, dtype=dtype) for _ in range(2)]
    seed = torch.tensor(5).to(rows[0].device)
    backward(lambda x, dx, weight, bias: residual_norm(x, dx, weight, bias, 0.1, seed, 1e-5), *rows, *parameters)


def linear_relu(dtype: torch.dtype) -> None:
    from rela.kernels.layers.linear_relu import linear_relu

    backward(linear_relu, draw(70, 96, dtype=dtype), draw(80, 96, dtype=dtype), draw(80, dtype=dtype))


def cross_entropy(dtype: torch.dtype) -> None:
    from rela.training.linear_cross_entropy import linear_cross_entropy

    hidden, weight = draw(50, 64, dtype=dtype), draw(300, 64, dtype=dtype)
    targets = (torch.arange(50) % 300).to(hidden.device)
    backward(lambda x, w: linear_cross_entropy(x, w, targets, 0.1, 32)[0][None].to(x.dtype), hidden, weight)


def centring(dtype: torch.dtype) -> None:
    from rela.kernels.layers.centring import centre_keys

    k = draw(sum(LENGTHS), 96, dtype=dtype)
    ends = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32).to(k.device)
    share = torch.tensor(0.5).to(k.device)
    backward(lambda k: centre_keys(k, ends, share), k)


def best_tokens(dtype: torch.dtype) -> None:
    """The output layer of a step of beam search."""
    from rela.kernels.search.top_candidates import tile_logits, tiles_of

    x, weight = draw(8, 64, dtype=dtype), draw(300, 64, dtype=dtype)
    logits = torch.zeros(8, 300).to(x.device)
    tiles = torch.zeros(3, 8, tiles_of(300)).to(x.device)
    tile_logits(x, weight, torch.tensor([0, 1], dtype=torch.int32).to(x.device), logits, tiles)


@triton.jit
def racing_kernel(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    b_x = tl.inline_asm_elementwise(
        "st.shared.u32 [global_smem], $1; ld.shared.u32 $0, [global_smem];",
        "=r,r",
        [tl.load(x + tl.arange(0, N))],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out, tl.sum(b_x))  # a sum over warps has shared memory


def race() -> None:
    """Two warps write to one place in shared memory: a race that the tool must find."""
    x = torch.arange(128, dtype=torch.int32).to("cuda")
    racing_kernel[(1,)](x, torch.zeros(1, dtype=torch.int32).to("cuda"), N=128, num_warps=4)


HALF = torch.bfloat16
CASES: dict[str, Callable[[], None]] = {
    CONTROL: race,
    "relu": lambda: relu(torch.float32),
    "relu-bf16": lambda: relu(HALF),
    "relu-deterministic": lambda: relu(HALF, deterministic=True),
    "relu-packed": lambda: relu_packed(HALF),
    "sparsemax": lambda: simplex(HALF, "sparsemax"),
    "entmax15": lambda: simplex(HALF, "entmax15"),
    "rms-norm": lambda: rms_norm(HALF),
    "residual-norm": lambda: residual_norm(HALF),
    "linear-relu": lambda: linear_relu(HALF),
    "cross-entropy": lambda: cross_entropy(HALF),
    "centring": lambda: centring(HALF),
    "decode": lambda: decode(HALF, 100, 64),
    "best-tokens": lambda: best_tokens(HALF),
    "hopper-relu": lambda: relu_on_hopper(HALF),
    "hopper-decode": lambda: decode(HALF, 600, 64),
}


def perform(name: str) -> None:
    """Run one case in this process."""
    CASES[name]()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"{name} ended", flush=True)


def check(name: str, tool: str, deadline: float, out: Path) -> str:
    """What the tool says of a case, in a line; its whole output is in a log."""
    log, cache = (out.with_name(f"{out.name}.{name.replace(' ', '-')}{ending}") for ending in (".log", ".cache"))
    program = [sys.executable, "-m", "scripts.racecheck", "--case", name]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    with log.open("w") as file:

        def ran(*line: str) -> int | None:
            left = max(deadline - time.monotonic(), 0.1)
            try:
                return subprocess.run(
                    [*line], stdout=file, stderr=subprocess.STDOUT, timeout=left, env=environment
                ).returncode
            except subprocess.TimeoutExpired:
                return None

        if (status := ran(*program)) != 0:
            return f"{name}: without the tool {'did not end' if status is None else f'failed, see {log}'}"
        kernels = sorted({path.stem for path in cache.rglob("*.cubin")})
        # Without a filter the tool also watches every kernel of PyTorch, which takes minutes.
        filters = [word for kernel in kernels for word in ("--kernel-name", f"kne={kernel}")]
        port = str(49152 + 32 * list(CASES).index(name))  # each process has ports of its own
        options = ["--tool", "racecheck", "--racecheck-report", "all", "--print-limit", "10", "--port", port]
        began = time.monotonic()
        status = ran(tool, *options, "--target-processes", "application-only", *filters, *program)
    shutil.rmtree(cache, ignore_errors=True)
    said = "did not end" if status is None else f"{verdict(log.read_text(errors='replace'))}; exit code {status}"
    return f"{name} ({', '.join(kernels) or 'no kernel'}): {said}; {time.monotonic() - began:.0f} s"


def verdict(text: str) -> str:
    """The tool's summary, and what it says it cannot watch."""
    summary = re.findall(r"=+ (RACECHECK SUMMARY: .*|ERROR SUMMARY: .*)", text)
    limits = re.findall(r"=+ (.*(?:not supported|unsupported|[Ii]nternal error|patching).*)", text)
    return "; ".join(dict.fromkeys([*summary, *limits])) or "no summary"


def main() -> None:
    """Check all cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", choices=CASES, help="run this one here, without the tool")
    parser.add_argument("--tool", default=shutil.which("compute-sanitizer"), help="path of compute-sanitizer")
    parser.add_argument("--seconds", type=float, default=85.0, help="for all together")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("races"), help="beginning of the names of the logs")
    arguments = parser.parse_args()
    if arguments.case:
        perform(arguments.case)
        return
    tool = arguments.tool or next((path for path in TOOLS if Path(path).exists()), None)
    if tool is None:
        parser.error("compute-sanitizer was not found; wanted --tool PATH")
    deadline = time.monotonic() + arguments.seconds
    with ThreadPoolExecutor(arguments.processes) as pool:
        for line in pool.map(lambda name: check(name, tool, deadline, arguments.out), CASES):
            print(line, flush=True)


if __name__ == "__main__":
    main()
