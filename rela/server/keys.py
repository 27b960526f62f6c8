"""API keys: read from a file, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from pathlib import Path

from fastapi import Request

from rela.files import read_text
from rela.web.refused import Refused


def read_keys(path: Path) -> frozenset[str]:
    """The keys of a file, one a line; empty lines and lines that begin with # are none."""
    lines = [line.strip() for line in read_text(path).splitlines()]
    keys = frozenset(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ValueError(f"{path} holds no key; wanted one a line")
    return keys


def is_known(key: str, keys: Iterable[str]) -> bool:
    """Whether a key is among those known; the time that takes does not depend on how much of it was right."""
    given = key.encode("utf-8", "surrogatepass")
    return sum(hmac.compare_digest(given, known.encode()) for known in keys) > 0


def key_of(request: Request) -> str | None:
    """The key in a request's head: Authorization: Bearer KEY, or X-API-Key: KEY."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key")


def check_key(key: str | None, keys: frozenset[str]) -> None:
    """Refuse a request without a known key, where keys are wanted."""
    if keys and (key is None or not is_known(key, keys)):
        raise Refused("wanted a known API key, as Authorization: Bearer KEY or X-API-Key: KEY", 401)
