"""A request limiter behind a real server on a free port of the loopback interface, and raw connections to it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from rela.web.request_limiter import RequestLimiter
from rela.web.running import Server, address_of, make_server, open_socket


@contextlib.contextmanager
def running(limiter: RequestLimiter, app=None, **options) -> Iterator[tuple[str, Server]]:
    """The address without its last slash, and the server, which ends as after a signal."""
    server = make_server(limiter, app, **options)
    with open_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield address_of(listener).rstrip("/"), server
        finally:
            server.stop()
            thread.join(20)
            assert not thread.is_alive(), "the server did not end"


def connect(address: str) -> socket.socket:
    """A connection to say whatever one likes on."""
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other side closes or cuts the connection."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            got += chunk
    return got


def refused(answer, status):
    """The one line that says why."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["error"]
    assert body["error"]
    assert "\n" not in body["error"]
    return body["error"]
