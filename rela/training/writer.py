"""Writing beside training: while a checkpoint goes to the disk, the next steps are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from rela.decoding.background import Background


class BackgroundWriter:
    """Does one piece of writing at a time in a thread, and keeps its error until it is asked for."""

    def __init__(self) -> None:
        self._writing: Background | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Have `write` called in a thread; `wait` has to come between two calls of this."""
        if self._writing is not None:
            raise RuntimeError("the writing before was not waited for")
        self._writing = Background(write, daemon=False)

    def wait(self) -> BaseException | None:
        """Wait until all is written; what went wrong, which is told once."""
        if self._writing is None:
            return None
        self._writing.wait()
        error, self._writing = self._writing.error, None
        return error


def host_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in host memory, which the steps that follow do not change."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
