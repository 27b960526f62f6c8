"""The web application: both interfaces, health, metrics and the explorer, behind a request limiter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse

import rela
from rela.decoding.translate import Translator
from rela.explorer.examples import Example
from rela.explorer.payload import View
from rela.explorer.server import create_app as create_explorer
from rela.explorer.views import Views
from rela.server import api, libretranslate
from rela.server.keys import check_key, key_of
from rela.server.metrics import CONTENT_TYPE, Measured, Metrics
from rela.server.models import ServedModels
from rela.server.schemas import Error, Health
from rela.server.settings import ServerSettings
from rela.web.replies import add_refusals
from rela.web.request_limiter import Application, RequestLimiter
from rela.web.running import Server, address_of, make_server, open_socket, run_until_interrupted

HOST, PORT = "127.0.0.1", 5000
EXPLORER = "/explorer"
DESCRIPTION = "Translation by models of `rela`, and LibreTranslate's interface to them."


class TranslationServer:
    """Models and the application that serves them; `app` is what an ASGI server runs."""

    def __init__(
        self,
        translators: Mapping[str, Translator],
        settings: ServerSettings | None = None,
        examples: Sequence[Example] = (),
    ) -> None:
        self.settings = settings or ServerSettings()
        self.metrics = Metrics()
        self.models = ServedModels(translators, self.settings, self.metrics.observe_batch)
        self.routes = make_routes(self.models, self.settings, self.metrics, lambda: self.limiter.stopping)
        if self.settings.explorer:
            mount_explorer(self.routes, self.models, Views(dict(translators), examples))
        inner: Application = self.routes
        if self.settings.origins:
            inner = CORSMiddleware(inner, allow_origins=self.settings.origins, allow_methods=["*"], allow_headers=["*"])
        self.limiter = RequestLimiter(inner, self.settings.limits, always=frozenset({"/health", "/metrics"}))
        self.metrics.watch(self.models, self.limiter)
        self.app = Measured(self.limiter, self.metrics, frozenset(self.routes.openapi()["paths"]))

    def http_server(self) -> Server:
        """What listens to clients."""
        settings = self.settings
        return make_server(self.limiter, self.app, connections=settings.connections, grace_seconds=settings.grace)


def make_routes(
    models: ServedModels, settings: ServerSettings, metrics: Metrics, is_stopping: Callable[[], bool]
) -> FastAPI:
    """All but the explorer; the models work from the application's start to its end."""

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        models.start()
        yield
        models.close()

    # No generated documentation: its pages load scripts from elsewhere.
    app = FastAPI(
        title="rela",
        version=rela.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=working,
    )
    add_refusals(app)
    app.include_router(api.make_router(models, settings))
    app.include_router(libretranslate.make_router(models, settings))

    @app.get("/", include_in_schema=False)
    async def index() -> dict[str, str | None]:
        explorer = f"{EXPLORER}/" if settings.explorer else None
        return {"name": "rela", "version": rela.__version__, "openapi": "/openapi.json", "explorer": explorer}

    @app.get("/health", tags=["operation"], response_model=Health, responses={503: {"model": Health}})
    async def health() -> JSONResponse:
        """Whether requests are answered: status 200, or 503 while stopping."""
        status = "stopping" if is_stopping() else "ok" if models.are_working else "failed"
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    @app.get(
        "/metrics",
        tags=["operation"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, 401: {"model": Error}},
    )
    async def prometheus(request: Request) -> Response:
        """Numbers for Prometheus."""
        check_key(key_of(request), settings.api_keys)
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return app


def mount_explorer(app: FastAPI, models: ServedModels, views: Views) -> None:
    """The explorer under its path; its views are made by the models' own workers."""

    async def run_view(model: str, make: Callable[[], View]) -> View:
        served = models.find(model, None, None)
        view: View = await served.run(make)
        return view

    app.mount(EXPLORER, create_explorer(views, hosts=None, run_view=run_view))


def serve(server: TranslationServer, host: str = HOST, port: int = PORT, say: Callable[[str], None] = print) -> None:
    """Serve until interrupted; port 0 chooses a free one."""
    listener = open_socket(host, port)
    pairs = ", ".join(f"{model.name} ({model.source} to {model.target})" for model in server.models)
    try:
        run_until_interrupted(
            server.http_server(),
            listener,
            lambda: say(f"rela serve: {address_of(listener)}  {pairs}  (Ctrl-C ends it)"),
        )
    finally:
        server.models.close()
