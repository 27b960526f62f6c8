"""One line of JSON for whatever is refused."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rela.web.refused import Busy, Refused

RETRY = {"Retry-After": "1"}


def refusal(message: str, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request that is refused."""
    return JSONResponse({"error": " ".join(message.split())}, status_code=status, headers=headers)


def add_refusals(app: FastAPI) -> None:
    """Answer every error of an application with one line of JSON."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return refusal(str(error), error.status, RETRY if isinstance(error, Busy) else None)

    @app.exception_handler(HTTPException)
    async def no_such_page(request: Request, error: HTTPException) -> JSONResponse:
        return refusal(str(error.detail), error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def not_as_described(request: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(describe(error), 422)


def describe(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request: where it is, and what was wanted."""
    errors = error.errors()
    first = errors[0]
    if first["type"] == "json_invalid":
        return "the request is no valid JSON in UTF-8"
    field = ".".join(str(part) for part in first["loc"] if part != "body")[:80]
    wanted = first["msg"]
    if first["type"] == "model_attributes_type":
        wanted = "wanted a JSON object" if field else "wanted a JSON object, and Content-Type: application/json"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{field or 'the request'}: {wanted}{more}"
