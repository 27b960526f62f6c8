"""Where the time of a Hugging Face model goes with our attention and with SDPA: launches, kernels, host, waits.

    python -m benchmarks.model_profile --models llama,marian             # on a GPU
    python -m benchmarks.model_profile --models marian --cases generate --lines 20
    python -m benchmarks.model_profile --models marian --rehearse        # tiny sizes on the CPU

The cases are those of benchmarks/front_door.py. PyTorch's profiler watches some calls of each side after others that
compile. It makes the host slower, so its host times say where the time goes, not how much it is: the calls are timed
without it first, in turns. Everything is given for one call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.clocks import Contender, eager_time, host_time
from benchmarks.front_door_models import MODELS, OURS, model_cases

LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
COPIES = ("cudaMemcpyAsync", "cudaMemsetAsync")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def main() -> None:
    options = options_of()
    device = torch.device("cpu" if options.rehearse else "cuda")
    kind = torch.float32 if options.rehearse else torch.bfloat16
    started = time.monotonic()
    for name in options.models:
        for case, make in model_cases(name, device, kind, options.rehearse):
            if options.cases and not any(word in case for word in options.cases):
                continue
            if time.monotonic() - started > 60 * options.minutes:
                raise SystemExit(f"{options.minutes:g} minutes spent; {name}, {case} and what follows are left out")
            print(f"\n# {name}, {case}\n", flush=True)
            show(make(), options, device)


def show(sides: dict[str, Contender], options: argparse.Namespace, device: torch.device) -> None:
    """Print both sides of a case."""
    for side in sides.values():
        for _ in range(3):  # the first ones compile
            side.call()
    clocks: dict[str, Callable[..., float]] = {"host": host_time, "eager": eager_time}
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(options.turns):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            for clock, measure in clocks.items():
                times.setdefault((clock, name), []).append(measure(sides[name].call, 1, device))
    for clock in clocks:
        print(f"{clock:24}" + "".join(f"{median(times[clock, name]):12.1f}" for name in sides) + " µs")
    seen = {name: profiled(side.call, options.calls, device) for name, side in sides.items()}
    print(f"{'':24}" + "".join(f"{name:>12}" for name in sides))
    for label, names in (("launches", LAUNCHES), ("copies, fills", COPIES), ("waits", WAITS)):
        counts = [
            sum(event.count for event in events if event.key in names) / options.calls for events in seen.values()
        ]
        print(f"{label:24}" + "".join(f"{count:12.1f}" for count in counts))
    device_times = [sum(event.self_device_time_total for event in events) / options.calls for events in seen.values()]
    print(f"{'kernels':24}" + "".join(f"{taken:12.1f}" for taken in device_times) + " µs")
    for name, events in seen.items():
        title = "our attention" if name == OURS else name
        print_most(f"{title}: kernels, µs", events, "self_device_time_total", options)
        print_most(f"{title}: host, µs", events, "self_cpu_time_total", options)


def profiled(call: Callable[[], object], calls: int, device: torch.device) -> Sequence[Any]:
    """The profiler's averages of some calls, by the names of operators, kernels and calls of the driver."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, acc_events=True) as seen:  # 2.11 warns without
        for _ in range(calls):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return list(seen.key_averages())


def print_most(title: str, events: Sequence[Any], field: str, options: argparse.Namespace) -> None:
    """The names that take most of a kind of time, and how often a call has them."""
    most = sorted((event for event in events if getattr(event, field)), key=lambda event: -getattr(event, field))
    if most:
        print(f"\n{title}")
    for event in most[: options.lines]:
        taken, count = getattr(event, field) / options.calls, event.count / options.calls
        print(f"{taken:12.1f} {count:8.1f} x  {event.key[:96]}")


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--cases", default="", help="words of which the name of a case has to contain one")
    parser.add_argument("--lines", type=int, default=12, help="lines of each list")
    parser.add_argument("--calls", type=int, default=3, help="calls that the profiler watches")
    parser.add_argument("--turns", type=int, default=7, help="calls that are timed without it")
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no case after this many minutes")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU, to see that every case runs")
    options = parser.parse_args()
    options.models = options.models.split(",")
    options.cases = [word for word in options.cases.split(",") if word]
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if not options.rehearse and not torch.cuda.is_available():
        parser.error("this needs a CUDA device, and PyTorch sees none; --rehearse needs none")
    return options


if __name__ == "__main__":
    main()
