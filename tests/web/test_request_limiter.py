"""Requests come through whole or are refused in one line; clients that leave, stall or crowd do no harm."""

import asyncio
import json
import logging
import threading
import time

import pytest

pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

from rela.web.request_limiter import Limits, RequestLimiter  # noqa: E402
from tests.web.serving import connect, read_all, running  # noqa: E402

HEAD = b"POST /%s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


class Echo:
    """Answers with the body it got; /wait waits for leave first, /fail raises, /large sends much."""

    def __init__(self):
        self.leave, self.cancelled, self.begun = threading.Event(), 0, 0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        self.begun += 1
        body = (await receive())["body"]
        try:
            while scope["path"] == "/wait" and not self.leave.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2000 if scope["path"] == "/large" else 1):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def echo():
    return Echo()


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def refused(answer, status):
    assert answer.status_code == status
    body = answer.json()
    assert list(body) == ["error"]
    assert "\n" not in body["error"]
    return body["error"]


@pytest.fixture
def errors(caplog):
    """What the server logs; nothing, if all is well."""
    with caplog.at_level(logging.DEBUG, logger="uvicorn.error"):
        yield lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_request_comes_through_whole(echo):
    body = bytes(range(256)) * 1000
    with running(RequestLimiter(echo)) as (address, _):
        assert httpx.post(address, content=body, trust_env=False).content == body
        assert httpx.post(address, content=iter([body, b"", body]), trust_env=False).content == body * 2
        assert httpx.get(address, trust_env=False).content == b""


def test_a_body_of_the_largest_size_is_taken_and_one_byte_more_is_not(echo):
    with running(RequestLimiter(echo, Limits(body=1000))) as (address, _):
        assert len(httpx.post(address, content=b"x" * 1000, trust_env=False).content) == 1000
        for size in (1001, 3999, 4001, 10**7):
            assert "1,000 bytes" in refused(httpx.post(address, content=b"x" * size, trust_env=False), 413)
        assert refused(httpx.post(address, content=iter([b"x" * 900] * 2), trust_env=False), 413)
        assert echo.begun == 1


def test_who_sends_all_before_reading_still_reads_the_refusal(echo):
    """A connection with unread bytes that is closed is reset, and the client loses what was sent to it."""
    with running(RequestLimiter(echo, Limits(body=1000))) as (address, _), connect(address) as connection:
        connection.sendall(HEAD % (b"", 9000))
        for _ in range(3):
            time.sleep(0.1)
            connection.sendall(b"x" * 3000)
        assert b"1,000 bytes" in read_all(connection)


def test_a_client_that_leaves_within_its_body_leaves_no_trace(echo, errors):
    limiter = RequestLimiter(echo)
    with running(limiter) as (address, _):
        for sent in (b"POST / HT", HEAD % (b"", 100), HEAD % (b"", 100) + b"half"):
            with connect(address) as connection:
                connection.sendall(sent)
                time.sleep(0.05)
        until(lambda: limiter.in_flight == 0)
        assert httpx.post(address, content=b"next", trust_env=False).content == b"next"
    assert echo.begun == 1
    assert errors() == []


def test_work_for_a_client_that_left_is_cancelled(echo, errors):
    limiter = RequestLimiter(echo)
    with running(limiter) as (address, _):
        with connect(address) as connection:
            connection.sendall(HEAD % (b"wait", 4) + b"body")
            until(lambda: echo.begun)
            assert limiter.in_flight == 1
        until(lambda: limiter.in_flight == 0)
    assert echo.cancelled == 1
    assert errors() == []


def test_slow_clients_are_cut_off(echo, errors):
    limiter = RequestLimiter(echo, Limits(read_seconds=0.3))
    with running(limiter) as (address, _):
        for sent, answer in (
            (b"", b""),
            (b"POST / HT", b""),
            (HEAD % (b"", 4) + b"ha", b"HTTP/1.1 408"),
        ):
            with connect(address) as connection:
                connection.sendall(sent)
                start = time.monotonic()
                assert read_all(connection).startswith(answer)
                assert time.monotonic() - start < 5
        with connect(address) as connection:  # its second request stops half-way
            connection.sendall(HEAD % (b"", 4) + b"once")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(b"POST / HT")
            start = time.monotonic()
            read_all(connection)
            assert time.monotonic() - start < 3  # sooner than the 5 seconds of a connection that is kept
        with connect(address) as connection:  # it asks for much and reads nothing
            connection.sendall(HEAD % (b"large", 50_000) + b"x" * 50_000)
            until(lambda: limiter.in_flight == 1)
            until(lambda: limiter.in_flight == 0)
    assert errors() == []


def test_an_answer_that_takes_too_long_is_given_up(echo):
    with running(RequestLimiter(echo, Limits(answer_seconds=0.2))) as (address, _):
        assert "0.2 seconds" in refused(httpx.post(f"{address}/wait", trust_env=False), 504)
        assert echo.cancelled == 1


def test_more_requests_than_allowed_are_told_to_come_back(echo):
    limiter = RequestLimiter(echo, Limits(requests=2), always=frozenset({"/health"}))
    with running(limiter) as (address, _):
        with connect(address) as one, connect(address) as two:
            for connection in (one, two):
                connection.sendall(HEAD % (b"wait", 0))
            until(lambda: limiter.in_flight == 2)
            answer = httpx.get(address, trust_env=False)
            refused(answer, 503)
            assert answer.headers["retry-after"] == "1"
            assert httpx.get(f"{address}/health", trust_env=False).status_code == 200
            echo.leave.set()
            until(lambda: limiter.in_flight == 0)
        assert httpx.get(address, trust_env=False).status_code == 200


def test_a_stop_answers_what_has_arrived_and_refuses_the_rest(echo, errors):
    limiter = RequestLimiter(echo)
    with running(limiter) as (address, server), connect(address) as waiting, connect(address) as arriving:
        waiting.sendall(HEAD % (b"wait", 4) + b"body")
        arriving.sendall(HEAD % (b"", 100) + b"half")
        until(lambda: limiter.in_flight == 2)
        server.stop()
        assert b"503" in read_all(arriving).splitlines()[0]
        refused(httpx.get(address, trust_env=False), 503)
        echo.leave.set()
        answer = read_all(waiting)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"body" in answer
    assert errors() == []


def test_a_stop_waits_no_longer_than_its_grace(echo, errors):
    limiter = RequestLimiter(echo)
    with running(limiter, grace_seconds=0.2) as (address, server), connect(address) as waiting:
        waiting.sendall(HEAD % (b"wait", 0))
        until(lambda: limiter.in_flight == 1)
        server.stop()
        head, _, body = read_all(waiting).partition(b"\r\n\r\n")
        assert b"503" in head.splitlines()[0]
        assert json.loads(body) == {"error": "the server is stopping"}
    assert echo.cancelled == 1
    assert errors() == []
