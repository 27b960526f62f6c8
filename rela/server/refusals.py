"""The refusals that the server's description of itself lists, each with its status."""

from __future__ import annotations

from typing import Any

from rela.server.schemas import Error

OF_ANY_REQUEST = {
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    500: "The model failed on this text.",
    503: "Too many requests wait, or the server is stopping.",
    504: "The answer took too long.",
}


def describe_refusals(descriptions: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Responses as FastAPI takes them: these, and those that any request may get."""
    all_of_them = OF_ANY_REQUEST | descriptions
    return {status: {"model": Error, "description": all_of_them[status]} for status in sorted(all_of_them)}
