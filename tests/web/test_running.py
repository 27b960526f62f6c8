"""A socket is had or refused in one line, and idle clients do not hold a server up when it is to end."""

import asyncio
import errno
import time

import pytest

pytest.importorskip("uvicorn")

from rela.web.request_limiter import RequestLimiter
from rela.web.running import address_of, open_socket, report_loop_error
from tests.web.serving import connect, read_all, running
from tests.web.test_request_limiter import HEAD, Echo


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_as_a_client_writes_it(host):
    try:
        listener = open_socket(host, 0)
    except ValueError:
        pytest.skip(f"{host} is not there")
    with listener:
        address = address_of(listener)
        assert address.startswith("http://[::1]:" if ":" in host else "http://127.0.0.1:")
        with connect(address):
            pass


def test_a_port_that_cannot_be_had_is_one_line():
    with open_socket("127.0.0.1", 0) as listener:
        for port in (listener.getsockname()[1], 70_000):
            with pytest.raises(ValueError, match="cannot be opened"):
                open_socket("127.0.0.1", port)
    with pytest.raises(ValueError, match="cannot be opened"):
        open_socket("no.such.host.invalid", 0)


def test_idle_and_half_open_connections_do_not_delay_the_end():
    with running(RequestLimiter(Echo())) as (address, server):
        idle, half, kept = connect(address), connect(address), connect(address)
        half.sendall(b"POST / HT")
        kept.sendall(HEAD % (b"", 2) + b"ok")
        assert kept.recv(65536).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
        server.stop()
        for connection in (idle, half, kept):
            with connection:
                read_all(connection)
    assert time.monotonic() - start < 3


def test_more_connections_than_allowed_get_503():
    with running(RequestLimiter(Echo()), connections=3) as (address, _), connect(address), connect(address):
        time.sleep(0.1)
        with connect(address) as third:
            third.sendall(HEAD % (b"", 0))
            assert third.recv(65536).startswith(b"HTTP/1.1 503")


def test_connections_that_wait_for_a_free_file_are_one_warning(caplog):
    """Of an accept that fails, asyncio reports each of up to 2,048 tries."""
    loop = asyncio.new_event_loop()
    try:
        loop.set_exception_handler(report_loop_error)
        with pytest.warns(UserWarning, match="too many open files"):
            loop.call_exception_handler({"message": "accept", "exception": OSError(errno.EMFILE, "too many")})
        assert not caplog.records
        loop.call_exception_handler({"message": "another fault", "exception": OSError(errno.EIO, "broken")})
        assert "another fault" in caplog.text
    finally:
        loop.close()
