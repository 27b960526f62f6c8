"""A web application on a socket until it is interrupted: bounded connections, a drain, and a quiet end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rela.web.request_limiter import Application, RequestLimiter

LINGER_SECONDS = 1.0
"""After the last answer, for clients that are slow to read it."""


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)  # before the address is printed, so that a client that connects at once is not refused
    except (OSError, OverflowError) as error:
        listener.close()
        raise ValueError(f"port {port} of {host} cannot be opened ({error}); wanted a free one, or 0 for any") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """The address of a socket as a client writes it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def make_server(
    limiter: RequestLimiter, app: Application | None = None, *, connections: int = 1024, grace_seconds: float = 30.0
) -> Server:
    """A server of a request limiter and its application; `app` is what stands before the limiter, if something does."""
    config = uvicorn.Config(
        app or limiter,
        http=type("Protocol", (BoundedProtocol,), {"seconds": limiter.limits.read_seconds}),
        log_level="error",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=connections,
    )
    return Server(config, limiter, grace_seconds)


def report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Warn once where connections wait for a free file; asyncio logs thousands of tracebacks, and tries again."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        warnings.warn("too many open files: new connections wait (ulimit -n has the limit)", stacklevel=1)
    else:
        loop.default_exception_handler(context)


class Server(uvicorn.Server):
    """Uvicorn's server with a drain: after the first signal new requests get 503 and those in flight are answered.

    It ends when none is left, after `grace_seconds`, or at the second signal, and never as if it had failed.
    """

    def __init__(self, config: uvicorn.Config, limiter: RequestLimiter, grace_seconds: float) -> None:
        super().__init__(config)
        self.limiter, self.grace_seconds = limiter, grace_seconds
        self.signals, self.stop_at = 0, 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal; uvicorn would raise it again at the end, as if nobody had handled it."""
        self.signals += 1

    def stop(self) -> None:
        """End as after a signal; from any thread."""
        self.signals += 1

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        asyncio.get_running_loop().set_exception_handler(report_loop_error)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Whether to end; asked ten times a second."""
        if self.signals and not self.stop_at:
            self.stop_at = time.monotonic() + self.grace_seconds
            self.limiter.stop()
        if self.stop_at and (self.signals > 1 or not self.limiter.in_flight or time.monotonic() > self.stop_at):
            self.limiter.give_up()
            self.should_exit = True
        ended: bool = await super().on_tick(counter)
        return ended

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections; one whose client does not read is cut off."""
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.cut_off)
        await super().shutdown(sockets)

    def cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class BoundedProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, to clients that take at most `seconds` to send the head of a request or to read on.

    The request limiter bounds the body of a request.
    """

    seconds = 10.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.head, self.write = Deadline(self), Deadline(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.head.start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self.head.stop()
        else:  # the first bytes of another request
            self.head.start()

    def on_response_complete(self) -> None:
        self.head.stop()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.write.start()

    def resume_writing(self) -> None:
        self.write.stop()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.write.start()  # what was written may never be read

    def connection_lost(self, exc: Exception | None) -> None:
        self.head.stop()
        self.write.stop()
        super().connection_lost(exc)


class Deadline:
    """Cuts a connection off when its time is over."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self.protocol = protocol
        self.timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, unless begun."""
        if self.timer is None:
            self.timer = self.protocol.loop.call_later(self.protocol.seconds, self.protocol.transport.abort)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def run_until_interrupted(server: Server, listener: socket.socket, say: Callable[[], None]) -> None:
    """Serve on a socket until SIGINT or SIGTERM; `say` is called when the server is about to answer."""
    with listener, contextlib.suppress(KeyboardInterrupt):  # one that comes before the server listens to signals
        say()
        server.run(sockets=[listener])
