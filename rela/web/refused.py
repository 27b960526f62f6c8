"""The error of a request that is refused; it needs no web framework, so that an export can raise it too."""

from __future__ import annotations


class Refused(ValueError):
    """What a client asked for cannot be done; `status` is the HTTP status that says so."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


class Busy(Refused):
    """There is too much to do, or the server is stopping; the same request may be answered later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)
