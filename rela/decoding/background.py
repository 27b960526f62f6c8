"""Work done in a thread while the device, or the caller, does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Ahead:
    """A call under way in a thread of its own; `result` waits for it and raises what it raised.

    The thread is a daemon: one that waits for a line of input never keeps the program from ending.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run, args=(function, *arguments), daemon=True)
        self.thread.start()

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            self.value = function(*arguments)
        except BaseException as error:
            self.error = error

    @property
    def is_there(self) -> bool:
        """Whether `result` would neither wait nor raise."""
        return not self.thread.is_alive() and self.error is None

    def result(self) -> Any:
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.value
