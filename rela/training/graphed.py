"""A whole optimiser step as one CUDA graph: forward, backward, clipping and Adam are launched together.

A step of Transformer base is some two thousand kernels of ten to a hundred microseconds; launched one by one from
Python they keep a processor busy for longer than the device needs for them. Batches have one static shape, so a step
recorded once can be replayed for every batch that follows, with the batch copied into the tensors of the first one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from rela.data.batch import Batch

TakeStep = Callable[[Batch, Tensor], Tensor]
"""(a batch on the device, the factor of its loss) → [loss, nll]; trains, and leaves no gradients behind."""
# Steps taken one kernel at a time before one is recorded: compilation and lazy initialisation happen in them.
WARM_UP = 3


class GraphedStep:
    """Takes training steps: the first few plainly, then one is recorded, and it and all others are replayed.

    Every step trains exactly once. What changes from step to step must lie on the device (the batch, the factor, the
    learning rate, the generator's seed); a batch of another shape is refused.
    """

    def __init__(self, take_step: TakeStep, device: torch.device) -> None:
        self.take_step, self.device = take_step, device
        self.stream = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Batch | None = None
        self.factor = torch.zeros((), device=device)
        self.sums = torch.zeros(2, device=device)
        self.steps = 0
        self.can_record = True

    def __call__(self, batch: Batch, factor: float) -> Tensor:
        """Train on one batch; [loss, nll], overwritten by the next step."""
        self.fill(batch, factor)
        assert self.batch is not None
        self.steps += 1
        if self.graph is None and self.steps > WARM_UP and self.can_record:
            self.record()
        if self.graph is not None:
            self.graph.replay()
            return self.sums
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            self.sums = self.take_step(self.batch, self.factor)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return self.sums

    def record(self) -> None:
        """Record a step; nothing is computed. Where a step cannot be recorded, say so and go on taking it plainly."""
        assert self.batch is not None
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: the loader's thread may ask for pinned memory at the same time
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.sums = self.take_step(self.batch, self.factor)
        except RuntimeError as error:
            self.can_record = False
            reason = str(error).strip().splitlines()
            warnings.warn(f"a training step cannot be a CUDA graph: {reason[0] if reason else error!r}", stacklevel=2)
            return
        self.graph = graph

    def fill(self, batch: Batch, factor: float) -> None:
        """Put a batch where the recorded step will read it."""
        self.factor.fill_(factor)
        if self.batch is None:
            self.batch = batch.to(self.device)
            return
        if batch.shape != self.batch.shape:
            raise ValueError(f"a batch of shape {batch.shape} after one of {self.batch.shape}; wanted one static shape")
        for kept, new in zip(self.batch.tensors(), batch.tensors(), strict=True):
            kept.copy_(new, non_blocking=True)
