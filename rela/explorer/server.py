"""The explorer's web server: a few fixed files, three questions, and one line of JSON for whatever it refuses."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rela.explorer.export import PAGE, export_page, linked_files, static_file
from rela.explorer.views import Refused, Views

HOST, PORT = "127.0.0.1", 8765
MAX_BODY = 1 << 17
"""Bytes of a request: two texts of the longest kind, every character escaped."""
MAX_MODELS = 2
"""Side by side."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Answer = TypeVar("Answer")
log = logging.getLogger("rela.explorer")


def create_app(views: Views, hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")) -> FastAPI:
    """The web application over these models; it answers only requests addressed to this machine by `hosts`."""
    files = linked_files()
    # No generated documentation: its pages load scripts from elsewhere.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    add_refusals(app, hosts)

    @app.get("/")
    async def page() -> Response:
        return Response(static_file(PAGE), media_type="text/html")

    @app.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in files:
            raise Refused("there is no such file", 404)
        return Response(static_file(name), media_type=files[name])

    @app.get("/api/start")
    async def start() -> JSONResponse:
        return JSONResponse(views.start())

    @app.post("/api/view")
    async def view(request: Request) -> Response:
        asked = await read_object(request, {"model": str, "source": str, "target": (str, type(None))})
        return JSONResponse(await work(lambda: views.view(**asked).to_dict()))

    @app.post("/api/export")
    async def export(request: Request) -> Response:
        asked = await read_object(request, {"models": list, "source": str, "target": (str, type(None))})
        names = asked.pop("models", [])
        if not 1 <= len(names) <= MAX_MODELS or not all(isinstance(name, str) for name in names):
            raise Refused(f"models is no list of 1 to {MAX_MODELS} names")
        html = await work(lambda: export_page(views.start(), [views.view(name, **asked) for name in names]))
        return Response(
            html, media_type="text/html", headers={"Content-Disposition": 'attachment; filename="attention.html"'}
        )

    return app


def add_refusals(app: FastAPI, hosts: tuple[str, ...]) -> None:
    """Refuse requests to other hosts, and answer every error with one line of JSON."""

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # With DNS rebinding another site's name points to this machine; its pages must not be answered.
        host = request.headers.get("host", "").lower()
        known = (host if host.endswith("]") else host.rpartition(":")[0] or host) in hosts
        response = await call_next(request) if known else refusal(f"wanted a request to {' or '.join(hosts)}", 421)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return refusal(str(error), error.status)

    @app.exception_handler(HTTPException)
    async def no_such_page(request: Request, error: HTTPException) -> JSONResponse:
        return refusal(str(error.detail), error.status_code)


def refusal(message: str, status: int) -> JSONResponse:
    """The answer to a request that is refused."""
    return JSONResponse({"error": " ".join(message.split())}, status_code=status)


async def work(task: Callable[[], Answer]) -> Answer:
    """Run the model in a thread; whatever goes wrong there is one line to the visitor, and the server stays up."""
    try:
        return await run_in_threadpool(task)
    except Refused:
        raise
    except ValueError as error:
        raise Refused(str(error)) from error
    except Exception as error:
        log.exception("a view failed")
        raise Refused(
            f"the model failed on this text ({type(error).__name__}); see the server's output", 422
        ) from error


async def read_object(request: Request, fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a request, its fields and their types checked; all but `target` must be there."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # Also what keeps foreign pages out: a browser asks before it sends JSON elsewhere, and gets no leave here.
        raise Refused("wanted the content type application/json", 415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Refused(f"the request is larger than {MAX_BODY:,} bytes; wanted less text", 413)
    try:
        data = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Refused("the request is no valid JSON in UTF-8", 400) from None
    if not isinstance(data, dict):
        raise Refused(f"the request is a JSON {type(data).__name__}; wanted an object")
    if unknown := data.keys() - fields.keys():
        raise Refused(f"{len(unknown)} unknown fields; wanted {', '.join(fields)}")
    for name, kind in fields.items():
        if name not in data and name != "target":
            raise Refused(f"{name} is missing; wanted {', '.join(fields)}")
        if not isinstance(data.get(name), kind):
            raise Refused(f"{name} is a {type(data.get(name)).__name__}; wanted {'a list' if kind is list else 'text'}")
    return data


def serve(views: Views, port: int = PORT, say: Callable[[str], None] = print) -> None:
    """Serve the page on the loopback interface until interrupted; port 0 takes a free one."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((HOST, port))
            door.listen()  # before the address is said: who comes at once waits, and is not turned away
        except (OSError, OverflowError) as error:
            raise ValueError(f"port {port} cannot be had ({error}); wanted a free one, or 0 for any") from None
        say(f"rela explorer: http://{HOST}:{door.getsockname()[1]}/  (Ctrl-C ends it)")
        config = uvicorn.Config(create_app(views), log_level="warning", server_header=False, ws="none")
        uvicorn.Server(config).run(sockets=[door])
