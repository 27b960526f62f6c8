"""The error of work that cannot go on for a reason its user can read and act on."""

from __future__ import annotations


class RunFailed(RuntimeError):
    """A run cannot go on, and the message says why; the command line shows it as one line, without a traceback."""
