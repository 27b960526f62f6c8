"""CUDA graphs, one for each shape a function is called with: captured at the second call, replayed from then on."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch


class Graphs:
    """Calls a function eagerly or as a graph; the function reads and writes static tensors alone and returns nothing.

    The first call with a key runs eagerly, which compiles what there is to compile; the second captures. Graphs share
    their memory, so they never run at the same time. Off a GPU every call is eager.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self.pool, self.stream = None, None
        if device.type == "cuda":
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    def __call__(self, key: Hashable, function: Callable[[], None]) -> None:
        if self.stream is None:
            function()
        elif key not in self.graphs:
            self.graphs[key] = None
            function()
        else:
            graph = self.graphs[key]
            if graph is None:
                graph = self.graphs[key] = self.capture(function)
            graph.replay()

    def capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """A graph of all kernels that a function launches."""
        # torch.cuda.graph would collect garbage and empty the cache first, which takes longer than the capture.
        assert self.stream is not None
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                function()
            finally:
                graph.capture_end()
        current.wait_stream(self.stream)
        return graph
