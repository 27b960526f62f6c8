"""Three times of one call: the host's part, the device's part, and both together as in an eager program.

host    many calls one after another without waiting for the device: Python, PyTorch's dispatcher and the launches
device  one call recorded as a CUDA graph and replayed, or, where it cannot be recorded, the sum of its kernels
eager   many calls one after another, from the start of the first to the end of the last on the device

Contenders take turns within one process, so that a change of the clock frequency affects all of them.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

QUEUE = 240  # launches that a device accepts before the host has to wait for it, with room to spare
SLOW = 4.0  # times the quickest contender's time: so slow is no backend that could become the rival
SLEEP = 2_000_000  # cycles, about a millisecond: the host gets ahead before the first event


@dataclass(frozen=True)
class Contender:
    """One way to compute a case: the call, and a context that holds while it is measured (a backend of SDPA)."""

    call: Callable[[], object]
    context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    launches: int = 4
    """About how many kernels a call launches: bounds the calls that are queued at once."""
    recordable: bool = True
    """Whether a CUDA graph of the call is worth a try; whole models wait for the device somewhere."""
    one_of_many: bool = False
    """Whether it is one backend of several, of which the best counts: a slow one is measured once."""
    turns: int = 1
    """At least so many turns: few calls of a whole model, whose host time varies, have no median to rely on."""


@dataclass
class Times:
    """Microseconds of one contender, one for each turn; `device` is empty where there is no GPU."""

    host: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    eager: list[float] = field(default_factory=list)
    device_by: str = ""
    megabytes: float | None = None

    def of(self, measure: str) -> list[float]:
        return getattr(self, measure)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def host_time(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Microseconds the host spends on a call; the device starts idle, and nobody waits for it."""
    wait(device)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    end = time.perf_counter()
    wait(device)
    return (end - begin) / calls * 1e6


def eager_time(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Microseconds a call takes among many others, whoever of host and device is the slower."""
    wait(device)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    wait(device)
    return (time.perf_counter() - begin) / calls * 1e6


def replay_time(replay: Callable[[], object], calls: int) -> float:
    """Microseconds of a recorded call on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)
    start.record()
    for _ in range(calls):
        replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls * 1e3


def recorded(call: Callable[[], object]) -> Callable[[], object]:
    """The call as a CUDA graph: launches without their gaps.

    It is recorded on the current stream unless that is the default one, which cannot be. A backward pass runs on the
    stream of its forward pass: a program that records backward passes alone runs all of itself on one other stream.
    """
    current = torch.cuda.current_stream()
    stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    current.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            call()
    except BaseException:
        renew_generator()
        raise
    return graph.replay


def renew_generator() -> None:
    """Give the device's generator a state of its own again, after a recording that failed and still holds the old."""
    torch.cuda.synchronize()
    fresh = torch.Generator(device="cuda")
    fresh.manual_seed(torch.initial_seed())
    torch.cuda.default_generators[torch.cuda.current_device()].graphsafe_set_state(fresh.graphsafe_get_state())


def kernel_time(call: Callable[[], object], calls: int) -> float:
    """Microseconds that the kernels of a call take, added up by PyTorch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profile.key_averages()) / calls


def device_clock(contender: Contender) -> tuple[Callable[[int], float], str]:
    """A function from a number of calls to microseconds on the device, and how it measures."""
    if not contender.recordable:
        return lambda calls: kernel_time(contender.call, calls), "profiler"
    try:
        replay = recorded(contender.call)
    except Exception:  # such as a wait inside the call
        torch.cuda.synchronize()
        return lambda calls: kernel_time(contender.call, calls), "profiler"
    return lambda calls: replay_time(replay, calls), "graph"


def take_turns(
    contenders: Mapping[str, Contender],
    turns: int,
    device: torch.device,
    measures: Sequence[str] = ("host", "device", "eager"),
    milliseconds: float = 20.0,
) -> tuple[dict[str, Times], dict[str, str]]:
    """The times of every contender, and for those that cannot run the reason; a slow backend has one turn."""
    ready: dict[str, Any] = {}
    single = dict[str, float]()
    times, left_out = dict[str, Times](), dict[str, str]()
    for name, contender in contenders.items():
        try:
            with contender.context():
                for _ in range(3):  # the first compiles, and may tune; the clocks rise
                    contender.call()
                once = eager_time(contender.call, 1, device) / 1e3
                clock = device_clock(contender) if device.type == "cuda" and "device" in measures else (None, "")
                megabytes = peak_megabytes(contender.call, device)
        except Exception as problem:  # not built, not supported, out of memory: the others still run
            left_out[name] = first_line(problem)
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        calls = max(1, min(100, round(milliseconds / max(once, 1e-3))))
        queued = max(1, min(calls, QUEUE // contender.launches))
        single[name] = once
        ready[name], times[name] = (contender, calls, queued, clock[0]), Times(device_by=clock[1], megabytes=megabytes)
    quick = [name for name in ready if not ready[name][0].one_of_many or single[name] <= SLOW * min(single.values())]
    for turn in range(max(turns, *(contender.turns for contender in contenders.values()))):
        # what ran before changes the clock, so the order changes
        names = quick if turn else list(ready)
        for name in random.Random(turn).sample(names, len(names)):
            measure_once(times[name], *ready[name], device, measures)
    return times, left_out


def measure_once(
    times: Times,
    contender: Contender,
    calls: int,
    queued: int,
    device_clock: Callable[[int], float] | None,
    device: torch.device,
    measures: Sequence[str],
) -> None:
    """Add the times of one turn of a contender."""
    with contender.context():
        if "host" in measures:
            times.host.append(host_time(contender.call, queued, device))
        if "eager" in measures:
            times.eager.append(eager_time(contender.call, calls, device))
        if device_clock is not None:
            times.device.append(device_clock(calls))


def peak_megabytes(call: Callable[[], object], device: torch.device) -> float | None:
    """Memory that a call takes over what is there before; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def spread(values: Sequence[float]) -> float | None:
    """The distance between the quartiles, as a share of the median."""
    if len(values) < 2:
        return None
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines() or [""]
    return f"{type(problem).__name__}: {lines[0][:160]}"
