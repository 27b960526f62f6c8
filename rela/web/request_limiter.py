"""A request limiter before an application: bounds on the size, the time and the number of requests, an orderly end.

A request is read whole before the application sees it. So an application never meets half a body, and a client that
leaves, at whatever moment, leaves no traceback: before the end of its body nothing was begun for it, and afterwards
what was begun is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from rela.web.refused import Busy, Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

DISCARDED = 4
"""So many times the largest body is read and thrown away before it is refused."""
LINGER_SECONDS = 1.0
"""For the rest of a refused request: closed at once, the connection may be reset before the refusal is read."""


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take."""

    body: int = 1 << 20
    """Bytes of a request."""
    requests: int = 256
    """At a time; one more is refused with status 503."""
    read_seconds: float = 10.0
    """For a request to arrive, its body included."""
    answer_seconds: float = 60.0
    """From a complete request to the end of its answer."""


class RequestLimiter:
    """An ASGI application that lets requests through to another one within limits.

    Paths in `always` are answered whatever the number of requests, and while the server is stopping: health, metrics.
    `stop` refuses new requests; those that arrived whole are answered, and `in_flight` says how many are left.
    """

    def __init__(self, app: Application, limits: Limits | None = None, always: frozenset[str] = frozenset()) -> None:
        self.app, self.limits, self.always = app, limits or Limits(), always
        self.stopping = False
        self.in_flight = 0
        self._reading: set[asyncio.Timeout] = set()
        self._answering: set[asyncio.Timeout] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the application's own start and end
            await self.app(scope, receive, send)
            return
        free, incoming = scope["path"] in self.always, Incoming(receive)
        if not free and (refused := self.why_not()) is not None:
            await refuse(incoming, send, refused)
            return
        self.in_flight += not free
        try:
            await self.pass_on(scope, await self.read_body(scope, incoming), incoming, send)
        except ClientDisconnected:
            pass
        except Refused as error:
            await refuse(incoming, send, error)
        finally:
            self.in_flight -= not free

    def why_not(self) -> Refused | None:
        """Why a new request is refused, or None."""
        if self.stopping:
            return Busy("the server is stopping")
        if self.in_flight >= self.limits.requests:
            return Busy(f"the server is answering {self.in_flight} requests, and takes no more at a time; try again")
        return None

    def stop(self) -> None:
        """Refuse new requests and those that are still arriving; to be called in the thread of the event loop."""
        self.stopping = True
        end_now(self._reading)

    def give_up(self) -> None:
        """Refuse also those that are being answered."""
        self.stop()
        end_now(self._answering)

    async def read_body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body of a request."""
        largest, body, size, more = self.limits.body, bytearray(), 0, True
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = Refused(f"the request is larger than {largest:,} bytes; wanted less text", 413)
        if declared.isdigit() and int(declared[:20]) > DISCARDED * largest:
            raise too_large
        try:
            async with listed(asyncio.timeout(self.limits.read_seconds), self._reading):
                while more and size <= DISCARDED * largest:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    size += len(chunk)
                    body += chunk if size <= largest else b""
        except TimeoutError:
            if self.stopping:
                raise Busy("the server is stopping") from None
            seconds = self.limits.read_seconds
            raise Refused(f"the request did not arrive within {seconds:g} seconds", 408) from None
        if size > largest:
            raise too_large
        return bytes(body)

    async def pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let the application answer; cancel it if the client leaves or the time is over."""
        exchange = Exchange(body, receive, send)
        answering = asyncio.ensure_future(run(self.app, scope, exchange))
        watching = asyncio.ensure_future(exchange.watch())
        try:
            async with listed(asyncio.timeout(self.limits.answer_seconds), self._answering):
                await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
                if exchange.complete or answering.done():
                    await answering
        except TimeoutError:
            if exchange.started:
                raise ClientDisconnected from None
            if self.stopping:
                raise Busy("the server is stopping") from None
            seconds = self.limits.answer_seconds
            raise Refused(f"the answer took more than {seconds:g} seconds; send less, or later", 504) from None
        finally:
            await cancel(watching)
            await cancel(answering)


class Incoming:
    """The messages of a client; `ended` once its request is whole or it has left."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.ended = receive, False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message


class Exchange:
    """One request, already read, and the answer to it, as the application sees them."""

    def __init__(self, body: bytes, receive: Receive, send: Send) -> None:
        self.body, self._receive, self._send = body, receive, send
        self.taken = self.started = self.complete = False
        self.gone = asyncio.Event()

    async def watch(self) -> None:
        """Wait until the client leaves, or has its whole answer."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    async def receive(self) -> Message:
        if not self.taken:
            self.taken = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.started = True
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)


async def run(app: Application, scope: Scope, exchange: Exchange) -> None:
    """What `app` returns is any awaitable, and a task wants a coroutine."""
    await app(scope, exchange.receive, exchange.send)


@contextlib.asynccontextmanager
async def listed(timeout: asyncio.Timeout, among: set[asyncio.Timeout]) -> Any:
    """A timeout that is to be found in a set while it runs."""
    async with timeout:
        among.add(timeout)
        try:
            yield timeout
        finally:
            among.discard(timeout)


def end_now(timeouts: set[asyncio.Timeout]) -> None:
    """Let all timeouts expire now."""
    for timeout in timeouts:
        timeout.reschedule(asyncio.get_running_loop().time())


async def cancel(task: asyncio.Future[None]) -> None:
    """Cancel a task, if it is not done, and wait for its end; an error of one that was done has been raised."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved: asyncio warns of those that are not


async def refuse(incoming: Incoming, send: Send, error: Refused) -> None:
    """Send a refusal, throw away what still comes of the request, and close the connection."""
    body = json.dumps({"error": str(error)}, ensure_ascii=False).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    headers += [(b"retry-after", b"1")] if isinstance(error, Busy) else []
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while not incoming.ended:
                await incoming()
    await send({"type": "http.response.body", "body": b""})
