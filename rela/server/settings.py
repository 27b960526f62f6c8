"""What a server allows and waits for; the defaults are those of `rela serve`."""

from __future__ import annotations

from dataclasses import dataclass

from rela.config.checks import require, require_at_least, require_choice, require_positive
from rela.web.request_limiter import Limits


@dataclass(frozen=True)
class ServerSettings:
    """Limits, times and options of a server."""

    batch: int = 32
    """Sentences that a model is given together, at most."""
    latency_ms: float = 20.0
    """An answer that would be ready sooner may wait until then for others to be computed with it."""
    queue: int = 1024
    """Sentences that may wait for a model; more are refused with status 503."""
    concurrency: int = 256
    """Requests at a time; more are refused with status 503."""
    connections: int = 1024
    """Connections at a time, idle ones included."""
    max_body: int = 1 << 20
    """Bytes of a request."""
    max_texts: int = 256
    """Sentences of a request."""
    max_characters: int = 100_000
    """Characters of a request, of all its sentences together."""
    max_beam: int = 8
    """The widest beam, and so the most alternatives, that a request may ask for."""
    timeout: float = 60.0
    """Seconds from a complete request to its answer."""
    read_timeout: float = 10.0
    """Seconds that a client may take to send a request, or to read on."""
    grace: float = 30.0
    """Seconds for the requests in flight after a signal to stop."""
    api_keys: frozenset[str] = frozenset()
    """One of these must come with each request; none are asked for if there are none."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may ask, or "*" for all."""
    explorer: bool = True
    """Whether the explorer is there, under /explorer/; it sends no key, so not together with keys."""
    precision: str | None = None
    """Of translating and scoring, such as "int8"; each model's own if None."""

    def __post_init__(self) -> None:
        require_at_least(self, 1, "batch", "queue", "concurrency", "connections")
        require_at_least(self, 1, "max_body", "max_texts", "max_characters", "max_beam")
        require_at_least(self, 0, "latency_ms", "grace")
        require_positive(self, "timeout", "read_timeout")
        wanted = f"at least max_texts, {self.max_texts}: a request could never be taken otherwise"
        require(self.queue >= self.max_texts, "queue", self.queue, wanted)
        if self.precision is not None:
            require_choice(self, "precision", "auto", "bf16", "fp32", "int8")
        if self.api_keys and self.explorer:
            raise ValueError("the explorer's page sends no API key; wanted --no-explorer with --api-keys")

    @property
    def limits(self) -> Limits:
        """Of the request limiter."""
        return Limits(self.max_body, self.concurrency, self.read_timeout, self.timeout)
