"""The explorer's web server: a few fixed files, three questions, and one line of JSON for whatever it refuses."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from rela.errors import RunFailed
from rela.explorer.export import PAGE, export_page, linked_files, static_file
from rela.explorer.payload import View
from rela.explorer.views import Views
from rela.web.refused import Refused
from rela.web.replies import add_refusals, refusal
from rela.web.request_limiter import Limits, RequestLimiter
from rela.web.running import address_of, make_server, open_socket, run_until_interrupted

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
OPTIONAL = ("target", "off", "before", "address")
"""Fields that a request may leave out."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
RunView = Callable[[str, Callable[[], View]], Awaitable[View]]
"""Runs what makes a view with the model of this name, where that model may be used."""
log = logging.getLogger("rela.explorer")


async def run_in_thread(model: str, make: Callable[[], View]) -> View:
    """A view made in a thread; `Views` makes one at a time."""
    return await run_in_threadpool(make)


def create_app(views: Views, hosts: tuple[str, ...] | None = LOCAL_HOSTS, run_view: RunView = run_in_thread) -> FastAPI:
    """The web application over these models; it answers only requests addressed to `hosts` (None: to any name)."""
    files = linked_files()
    # No generated documentation: its pages load scripts from elsewhere.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    add_refusals(app)
    add_guard(app, hosts)

    async def make_view(model: str, source: str, target: str | None = None, off: list[Any] | None = None) -> View:
        return await work(run_view(model, lambda: views.view(model, source, target, off or ())))

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
        asked = await read_object(request, {"model": str, "source": str, "target": (str, type(None)), "off": list})
        return JSONResponse((await make_view(**asked)).to_dict())

    @app.post("/api/export")
    async def export(request: Request) -> Response:
        fields = {"models": list, "source": str, "target": (str, type(None)), "off": list}
        asked = await read_object(request, {**fields, "before": (str, type(None)), "address": str})
        names, off = asked.pop("models", []), asked.pop("off", [])
        before, address = asked.pop("before", None), asked.pop("address", "")
        if not 1 <= len(names) <= MAX_MODELS or not all(isinstance(name, str) for name in names):
            raise Refused(f"models is no list of 1 to {MAX_MODELS} names")
        if off and (len(off) != len(names) or not all(isinstance(heads, list) for heads in off)):
            raise Refused("off is no list with a list of heads for each model")
        heads = off or [[] for _ in names]
        shown = list(zip(names, heads, strict=True))
        made = [await make_view(name, **asked, off=one) for name, one in shown]
        compared = [] if before is None else [await make_view(n, asked["source"], before, one) for n, one in shown]
        html = export_page(views.start(), made, compared, address)
        return Response(
            html, media_type="text/html", headers={"Content-Disposition": 'attachment; filename="attention.html"'}
        )

    return app


def add_guard(app: FastAPI, hosts: tuple[str, ...] | None) -> None:
    """Refuse requests to other hosts, and tell the browser to load nothing from elsewhere."""

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # With DNS rebinding another site's name points to this machine; its pages must not be answered.
        host = request.headers.get("host", "").lower()
        known = hosts is None or (host if host.endswith("]") else host.rpartition(":")[0] or host) in hosts
        response = (
            await call_next(request) if known else refusal(f"wanted a request to {' or '.join(hosts or ())}", 421)
        )
        response.headers.update(HEADERS)
        return response


async def work(making: Awaitable[View]) -> View:
    """A view; whatever goes wrong in making it is one line to the visitor, and the server stays up."""
    try:
        return await making
    except Refused:
        raise
    except (ValueError, RunFailed) as error:
        raise Refused(str(error)) from error
    except Exception as error:
        log.exception("a view failed")
        raise Refused(
            f"the model failed on this text ({type(error).__name__}); see the server's output", 422
        ) from error


async def read_object(request: Request, fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a request, its fields and their types checked."""
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
    check_fields(data, fields)
    return data


def check_fields(data: dict[str, Any], fields: dict[str, Any]) -> None:
    """Refuse an object with other fields, or with fields of other types."""
    if unknown := data.keys() - fields.keys():
        raise Refused(f"{len(unknown)} unknown fields; wanted {', '.join(fields)}")
    if missing := [name for name in fields if name not in data and name not in OPTIONAL]:
        raise Refused(f"{missing[0]} is missing; wanted {', '.join(fields)}")
    for name, value in data.items():
        if not isinstance(value, fields[name]):
            wanted = "a list" if fields[name] is list else "text"
            raise Refused(f"{name} is a {type(value).__name__}; wanted {wanted}")


def serve(views: Views, port: int = PORT, say: Callable[[str], None] = print) -> None:
    """Serve the page on the loopback interface until interrupted; port 0 chooses a free one."""
    listener = open_socket(HOST, port)
    # Nobody waits for a picture after Ctrl-C.
    server = make_server(RequestLimiter(create_app(views), Limits(body=MAX_BODY)), grace_seconds=1.0)
    run_until_interrupted(server, listener, lambda: say(f"rela explorer: {address_of(listener)}  (Ctrl-C ends it)"))
