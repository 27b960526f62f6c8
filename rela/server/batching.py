"""Dynamic batching: requests that wait for a model are put into one batch; one thread works for each model.

A batch begins when the model is free. It then waits for more only while fewer requests have come than were there
together lately, and only as long as the oldest can still be answered within the latency target, or for a tenth of the
time that a batch takes. So a single client is answered at once, and many clients that ask again and again share
their batches, also where a batch takes longer than the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rela.web.refused import Busy

SMOOTHING = 0.2
"""Weight of the newest batch in the mean time of a batch."""
WAIT_SHARE = 0.1
"""Share of the mean time of a batch for which a free worker waits for clients that were just answered."""
log = logging.getLogger("rela.server")


Outcome = list[Any] | Exception
"""The results of a job, or what went wrong."""


@dataclass(frozen=True)
class Task:
    """What is to be done with sentences; those of equal tasks may share a batch."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    alone: bool = False
    """Whether it never shares a batch."""


@dataclass(eq=False)
class Job:
    """Sentences of one request, and where their results go."""

    task: Task
    items: Sequence[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[Any]]
    arrived: float = field(default_factory=time.monotonic)

    def finish(self, outcome: Outcome) -> None:
        """Hand over the results, or what went wrong; from the worker's thread."""

        def hand_over() -> None:
            if self.future.done():  # nobody waits any more
                return
            if isinstance(outcome, Exception):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)

        with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it who waited
            self.loop.call_soon_threadsafe(hand_over)


@dataclass(frozen=True)
class BatchDone:
    """What is measured of a batch."""

    task: str
    requests: int
    sentences: int
    seconds: float


Compute = Callable[[Task, list[Any]], list[Any]]
"""One result for each item."""


class Batcher:
    """The worker thread of one model, and the sentences that wait for it."""

    def __init__(
        self,
        compute: Compute,
        *,
        name: str = "model",
        batch: int = 32,
        latency: float = 0.02,
        queue: int = 1024,
        done: Callable[[BatchDone], None] | None = None,
    ) -> None:
        self.compute, self.name = compute, name
        self.batch, self.latency, self.queue = batch, latency, queue
        self.done = done or (lambda measured: None)
        self.waiting: deque[Job] = deque()
        self.sentences = 0
        """That wait."""
        self.expected = 1
        """Requests that were there together lately."""
        self.batch_seconds = 0.0
        self.free_since = 0.0
        self.closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work, unless begun."""
        if self._thread is None:
            self.closing = False
            self._thread = threading.Thread(target=self._work, name=f"rela-{self.name}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End after the batch that is being computed; what waits is refused."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._changed:
            while self.waiting:
                self._remove(self.waiting[0])[0].finish(Busy("the server is stopping"))

    @property
    def is_working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    async def submit(self, task: Task, items: Sequence[Any]) -> list[Any]:
        """One result for each item; a long request is cut, so that it can be given up when nobody waits for it."""
        loop = asyncio.get_running_loop()
        parts = [items[start : start + self.batch] for start in range(0, len(items), self.batch)]
        jobs = [Job(task, part, loop, loop.create_future()) for part in parts]
        with self._changed:
            if self.closing or not self.is_working:
                raise Busy("the server is stopping")
            if self.sentences + len(items) > self.queue:
                raise Busy(f"{self.sentences} sentences wait for this model, and at most {self.queue} may; try again")
            self.waiting.extend(jobs)
            self.sentences += len(items)
            self._changed.notify_all()
        try:
            return [result for job in jobs for result in await job.future]
        finally:
            self._forget(jobs)

    def _forget(self, jobs: list[Job]) -> None:
        """Take out of the queue what is not needed, because its client left, its time is over or a part failed."""
        with self._changed:
            for job in jobs:
                if not job.future.done():
                    job.future.cancel()
                elif not job.future.cancelled():
                    job.future.exception()  # looked at: the first one was raised
                if job in self.waiting:
                    self._remove(job)

    def _remove(self, *jobs: Job) -> tuple[Job, ...]:
        for job in jobs:
            self.waiting.remove(job)
            self.sentences -= len(job.items)
        return jobs

    def _work(self) -> None:
        while (jobs := self._next_batch()) is not None:
            start = time.monotonic()
            outcomes = self._run(jobs)
            seconds = time.monotonic() - start
            self.batch_seconds += (SMOOTHING if self.batch_seconds else 1.0) * (seconds - self.batch_seconds)
            with self._changed:
                self.expected = len(jobs) + len(self.waiting)
                self.free_since = time.monotonic()
            self.done(BatchDone(jobs[0].task.name, len(jobs), sum(len(job.items) for job in jobs), seconds))
            for job, outcome in zip(jobs, outcomes, strict=True):  # at the end: who has an answer may ask again
                job.finish(outcome)

    def _next_batch(self) -> tuple[Job, ...] | None:
        """The jobs of the next batch, or None at the end."""
        with self._changed:
            while not self.closing:
                if not self.waiting:
                    self._changed.wait()
                    continue
                target = self.waiting[0].arrived + self.latency - self.batch_seconds
                left = max(target, self.free_since + WAIT_SHARE * self.batch_seconds) - time.monotonic()
                chosen = self._choose()
                full = sum(len(job.items) for job in chosen) >= self.batch or chosen[0].task.alone
                if left <= 0 or full or len(self.waiting) >= self.expected:
                    return self._remove(*chosen)
                self._changed.wait(left)
            return None

    def _choose(self) -> list[Job]:
        """The oldest job, and those after it that can share its batch."""
        first = self.waiting[0]
        chosen, size = [first], len(first.items)
        for job in list(self.waiting)[1:]:
            if first.task.alone or size >= self.batch:
                break
            if job.task == first.task and size + len(job.items) <= self.batch:
                chosen.append(job)
                size += len(job.items)
        return chosen

    def _run(self, jobs: tuple[Job, ...]) -> list[Outcome]:
        """Compute a batch; if that fails, each job by itself, so that one text cannot make another's fail."""
        try:
            results = iter(self.compute(jobs[0].task, [item for job in jobs for item in job.items]))
            return [[next(results) for _ in job.items] for job in jobs]
        except Exception as error:
            if len(jobs) > 1:
                return [outcome for job in jobs for outcome in self._run((job,))]
            if not isinstance(error, ValueError):
                log.exception("%s: a batch failed", self.name)
            return [error]
