"""`rela serve` under load on the loopback interface: latency and throughput by batch size and number of clients.

    python -m benchmarks.server demo/rela-g/model --requests 1000 --batch 1 8 32 --clients 1 8 64

Each setting starts its own server. Every answer is compared with the model's translation of the same sentence. A
different answer, or a status other than 200, is an error. The numbers of requests and seconds are limited.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from benchmarks.common import command
from rela.toy import generate

HEAD = "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
SENTENCES, SEED = 500, 11


@dataclass
class Load:
    """What a load of requests came to."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    """Seconds of each request that was answered."""
    errors: list[str] = field(default_factory=list)
    unanswered: int = 0
    """Requests that were sent badly on purpose."""

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the requests was answered."""
        ordered = sorted(self.times)
        return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def __str__(self) -> str:
        return (
            f"{len(self.times)} answered, {self.unanswered} unanswered, {len(self.errors)} errors, "
            f"{self.seconds:.0f} s, {len(self.times) / self.seconds:.0f} requests/s, "
            f"p50 {self.percentile(0.5):.0f} ms, p99 {self.percentile(0.99):.0f} ms"
        )


class Client:
    """One HTTP connection, opened again whenever it was closed; it does as little as it can."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.port = parts.hostname, parts.port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.reader is None or self.writer is None or self.reader.at_eof():
            self.close()
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self.reader, self.writer

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        reader, writer = await self.open()
        writer.write(HEAD.format(path=path, length=len(body)).encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        answer = await reader.readexactly(int(length[1])) if length else await reader.read()
        return int(head[9:12]), answer

    async def leave(self, path: str, body: bytes, sent: int) -> None:
        """Send the first bytes of a request, and leave."""
        _, writer = await self.open()
        writer.write((HEAD.format(path=path, length=len(body)).encode() + body)[:sent])
        await writer.drain()
        self.close()

    async def stall(self, path: str, body: bytes, sent: int) -> bytes:
        """Send the first bytes of a request and wait until the server has enough of it."""
        reader, writer = await self.open()
        writer.write((HEAD.format(path=path, length=len(body)).encode() + body)[:sent])
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
            self.close()
            return answer
        self.close()
        return b""


Ask = Callable[[Client, int], Awaitable[str | None]]
"""Makes the n-th request and returns what was wrong, if anything; raises Unanswered if none should be answered."""


class Unanswered(Exception):
    """A request that was not meant to be answered."""


async def put_load(address: str, ask: Ask, requests: int, clients: int, seconds: float) -> Load:
    """Ask so many times by so many clients, each of which asks again when it has its answer."""
    load, numbers, end = Load(), iter(range(requests)), time.monotonic() + seconds

    async def work() -> None:
        client = Client(address)
        for number in numbers:
            start = time.monotonic()
            if start > end:
                break
            try:
                wrong = await ask(client, number)
            except Unanswered:
                load.unanswered += 1
                continue
            except (OSError, asyncio.IncompleteReadError) as error:
                client.close()
                wrong = f"{type(error).__name__}: {error}"
            load.times.append(time.monotonic() - start)
            load.errors += [f"request {number}: {wrong}"] if wrong else []
        client.close()

    start = time.monotonic()
    await asyncio.gather(*(work() for _ in range(clients)))
    load.seconds = time.monotonic() - start
    return load


def translations_asked(texts: Sequence[str], expected: Sequence[str]) -> Ask:
    """Requests for one translation each, of these texts in turn."""
    bodies = [json.dumps({"texts": [text]}).encode() for text in texts]

    async def ask(client: Client, number: int) -> str | None:
        i = number % len(bodies)
        status, answer = await client.post("/v1/translate", bodies[i])
        if status != 200:
            return f"status {status}: {answer[:200]!r}"
        found = json.loads(answer)["translations"][0][0]["text"]
        return None if found == expected[i] else f"{texts[i]!r} became {found!r}, wanted {expected[i]!r}"

    return ask


@contextlib.contextmanager
def serving(model: str, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of `rela serve` in a process of its own."""
    words = [sys.executable, "-m", "rela", "serve", f"en-de={model}", "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found is None:
                raise RuntimeError(f"the server did not start: {line}{process.stderr.read() if process.stderr else ''}")
            yield found[0], process
        finally:
            process.terminate()


def metrics_of(address: str) -> dict[str, float]:
    """The server's own numbers."""
    with build_opener(ProxyHandler({})).open(f"{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="model folder, English to German, such as the one of `rela demo`")
    parser.add_argument("--requests", type=int, default=1000, help="requests for each setting")
    parser.add_argument("--seconds", type=float, default=120.0, help="most seconds for each setting")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--latency-ms", type=float, default=20.0)
    options = parser.parse_args()
    from rela.decoding.translate import Translator

    texts = [pair.source for pair in generate(SENTENCES, SEED)]
    expected = Translator.load(options.model, "cpu").translate(texts)
    ask = translations_asked(texts, expected)
    print(f"`{command()}`, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before\n")
    print("| batch | clients | requests | errors | requests/s | p50 ms | p99 ms | sentences a batch |")
    print("|---|---|---|---|---|---|---|---|")
    for batch, clients in itertools.product(options.batch, options.clients):
        with serving(options.model, "--batch", str(batch), "--latency-ms", str(options.latency_ms)) as (address, _):
            asyncio.run(put_load(address, ask, 2 * clients, clients, 60))  # warm-up
            before = metrics_of(address)
            load = asyncio.run(put_load(address, ask, options.requests, clients, options.seconds))
            after = metrics_of(address)
        sums = [f'rela_batch_sentences_{name}{{model="en-de"}}' for name in ("sum", "count")]
        sentences, batches = (after[name] - before[name] for name in sums)
        print(
            f"| {batch} | {clients} | {len(load.times)} | {len(load.errors)} | {len(load.times) / load.seconds:.0f} "
            f"| {load.percentile(0.5):.0f} | {load.percentile(0.99):.0f} | {sentences / batches:.1f} |",
            flush=True,
        )
        for error in load.errors[:3]:
            print(f"  {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
