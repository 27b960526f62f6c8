"""The Python time of calls of the fused kernels, measured on a CPU with every launch left out.

    python -m benchmarks.host_time --out results/host-time

A call of the kernels costs the host time before the device begins. This script measures that part without a GPU: the
plans, the checks, the allocations, the node of autograd and Triton's search for a compiled variant are those of a
Hopper GPU, and where the launcher in C would be called, nothing is. What PyTorch's thread for the backward pass of a
GPU adds is not in it. A row "new length" has another number of tokens in each call, as batches of sentences have, and
as every step of a generation has.

Times are CPU times in µs, the least of some rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import rela
from benchmarks.common import facts
from rela.attention import norms, paths, plans
from rela.attention.dispatch import attend_normalised
from rela.attention.kinds import kind_of
from rela.attention.plans import Options
from rela.files import write_text

HEADS, SIZE = 2, 64
MULTIPROCESSORS = 132  # of an H200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="calls of a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lengths", type=int, default=32, help="different lengths of a round")
    parser.add_argument("--out", type=Path, help="folder for the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    leave_out_launches()
    gc.disable()
    rows = []
    for name, call in cases().items():
        same = least(lambda call=call: [call(0) for _ in range(options.calls)], options.rounds) / options.calls
        new = least(lambda call=call: first_calls(call, options.lengths), options.rounds) / options.lengths
        gc.collect()
        rows.append({"call": name, "same length": round(same, 1), "new length": round(new, 1)})
        print(f"{name:50} {same:8.1f} {new:8.1f}", flush=True)
    if options.out:
        written = facts(torch.device("cpu")) | {"unit": "µs of CPU time, launches left out", "rows": rows}
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / "cpu.json", json.dumps(written, indent=1) + "\n")


class Launcher:
    """Triton's launcher of a compiled kernel, without the launch."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid = launch_pdl = False

    def __call__(self, *arguments: Any) -> None: ...

    def launch(self, *arguments: Any) -> None: ...


def leave_out_launches() -> None:
    """Have calls with CPU tensors planned as on a Hopper GPU, and launch nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from rela.kernels import launch
    from rela.kernels.attention import backward, decode, problem
    from rela.kernels.hopper import backward as hopper_backward
    from rela.kernels.hopper import dispatch as hopper
    from rela.kernels.hopper import forward as hopper_forward
    from rela.kernels.layers import row_blocks

    device = SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda device: 0)
    device.get_current_target = lambda: GPUTarget("cuda", 90, 32)
    driver.set_active(device)
    compiled = SimpleNamespace(run=Launcher(), function=0, packed_metadata=())
    compiled.launch_metadata = lambda *arguments: None
    call_of = paths.call_of

    def compile_nothing(kernel: JITFunction, key: str, signature: Any, device: int, *others: Any) -> SimpleNamespace:
        return kernel.device_caches[device][0].setdefault(key, compiled)

    def unwrapped(start: Any, arguments: tuple[Any, ...], tiles: launch.Tiles) -> tuple[Any, Any, list[launch.Map]]:
        maps: list[launch.Map] = []
        for position in sorted(tiles):
            made = launch.described((arguments[position],), {0: tiles[position]})[0]
            facts = made.block_shape, made.shape, made.strides
            maps.append((position, facts, (*made.shape, *made.strides), {}))
        return start, lambda *facts: 0, maps[::-1]

    replacements: list[tuple[Any, str, Any]] = [
        (JITFunction, "_do_compile", compile_nothing),
        (launch, "unwrapped", unwrapped),
        (torch._C, "_cuda_getDevice", lambda: -1),
        (torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
        (paths, "call_of", lambda *given, **named: call_of(*given, **named)._replace(device="cuda")),
        (norms, "triton_serves", lambda z: True),
        (hopper, "available", lambda device: True),
    ]
    for module in (problem, backward, decode, row_blocks, hopper_forward, hopper_backward):
        if hasattr(module, "processors"):
            replacements.append((module, "processors", lambda device: MULTIPROCESSORS))
    for place, name, made in replacements:
        setattr(place, name, made)


Call = Callable[[int], object]
"""One call, of tensors that are longer by the number given."""


def cases() -> dict[str, Call]:
    """The calls that are measured, by name."""
    norm = norms.make_norm("gated-rms", HEADS * SIZE, dtype=torch.bfloat16)
    assert norm is not None
    options = Options(kind_of("rela-g"))

    def attended(x: Tensor, keys: Tensor) -> Tensor:
        return rela.attend(x, keys, keys)

    def normalised(x: Tensor, keys: Tensor) -> Tensor:
        return attend_normalised(x, keys, keys, options, norm, merged=False)

    found: dict[str, Call] = {}
    for name, function in (("attend", attended), ("attention and its norm", normalised)):
        for length in (64, 256):
            found[f"{name}, T = {length}, forward"] = forward(function, tensors(length, length))
            found[f"{name}, T = {length}, forward and backward"] = backward(function, tensors(length, length))
        for keys in (64, 640):
            found[f"{name}, one query, {keys} keys"] = forward(function, tensors(1, keys))
    rows = torch.randn(256, HEADS * SIZE, dtype=torch.bfloat16)
    found["GatedRMSNorm, forward"] = lambda more: without_gradient(norm, rows[: len(rows) - more])
    found["an autograd.Function that does nothing"] = nothing()
    return found


def tensors(queries: int, keys: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Queries and keys, longer by the number given; one query stays one."""
    made: dict[int, tuple[Tensor, Tensor]] = {}

    def of(more: int) -> tuple[Tensor, Tensor]:
        if more not in made:
            lengths = (queries if queries == 1 else queries + more), keys + more
            x, y = (torch.randn(1, HEADS, length, SIZE, dtype=torch.bfloat16) for length in lengths)
            made[more] = x.requires_grad_(), y.requires_grad_()
        return made[more]

    return of


def without_gradient(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    with torch.no_grad():
        return function(*given)


def forward(function: Callable[..., Tensor], of: Callable[[int], tuple[Tensor, Tensor]]) -> Call:
    return lambda more: without_gradient(function, *of(more))


def backward(function: Callable[..., Tensor], of: Callable[[int], tuple[Tensor, Tensor]]) -> Call:
    def call(more: int) -> object:
        x, keys = of(more)
        out = function(x, keys)
        return torch.autograd.grad(out, (x, keys), torch.empty_like(out))

    return call


def nothing() -> Call:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            return dy

    x = torch.randn(8, requires_grad=True)
    dy = torch.randn(8)
    return lambda more: torch.autograd.grad(Nothing.apply(x), x, dy)


def first_calls(call: Call, lengths: int) -> None:
    """Calls of new lengths, whose kernels were compiled for other ones."""
    from rela.kernels.attention import problem

    plans.PLANS.clear()
    problem.MEMOS.clear()
    for more in range(1, lengths + 1):
        call(more)


def least(function: Callable[[], object], rounds: int) -> float:
    """The least CPU time of a function in µs, after one call that is not counted."""
    return min(list(times(function, rounds + 1))[1:])


def times(function: Callable[[], object], rounds: int) -> Iterator[float]:
    for _ in range(rounds):
        started = time.process_time_ns()
        function()
        yield (time.process_time_ns() - started) / 1000


if __name__ == "__main__":
    main()
