"""Writing beside training: while a checkpoint goes to the disk, the next steps are computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from torch import Tensor


class BackgroundWriter:
    """Does one piece of writing at a time in a thread, and keeps its error until it is asked for."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Have `write` called in a thread; `wait` has to come between two calls of this."""
        if self._thread is not None:
            raise RuntimeError("the writing before was not waited for")
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint")
        self._thread.start()

    def wait(self) -> Exception | None:
        """Wait until all is written; what went wrong, which is told once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error

    def _run(self, write: Callable[[], object]) -> None:
        try:
            write()
        except Exception as error:
            self._error = error


def host_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in host memory, which the steps that follow do not change."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
