"""Models behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rela.commands.arguments import load_models, named_paths
from rela.commands.options import Device

if TYPE_CHECKING:
    from rela.decoding.translate import Translator


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS...",
            help="Model folders, or NAME=FOLDER; a name such as en-de says the languages, else its config does.",
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.")] = 5000,
    batch: Annotated[int, typer.Option(help="Most sentences computed together.")] = 32,
    latency_ms: Annotated[
        float, typer.Option(help="Longest time that a request waits for others to fill its batch.")
    ] = 20,
    queue: Annotated[int, typer.Option(help="Most sentences that wait for a model.")] = 1024,
    concurrency: Annotated[int, typer.Option(help="Most requests at a time.")] = 256,
    max_body: Annotated[int, typer.Option(help="Most bytes of a request.")] = 1 << 20,
    max_texts: Annotated[int, typer.Option(help="Most sentences of a request.")] = 256,
    max_characters: Annotated[int, typer.Option(help="Most characters of a request.")] = 100_000,
    max_beam: Annotated[int, typer.Option(help="Largest beam a request may ask for.")] = 8,
    timeout: Annotated[float, typer.Option(help="Most seconds for an answer.")] = 60,
    read_timeout: Annotated[float, typer.Option(help="Most seconds for a request to arrive.")] = 10,
    grace: Annotated[
        float, typer.Option(help="Seconds that open requests have to finish after Ctrl-C or SIGTERM.")
    ] = 30,
    api_keys: Annotated[Path | None, typer.Option(help="File of keys, one a line; each request needs one.")] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Web site whose pages may ask (repeatable), or '*' for all.")
    ] = None,
    explorer: Annotated[
        bool | None, typer.Option(help="The explorer under /explorer/; there unless --api-keys is given.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="auto, bf16, fp32 or, on a CPU, int8.")] = None,
    device: Device = "auto",
) -> None:
    """Serve translations over HTTP: an interface of its own, and LibreTranslate's.

    Example: `rela serve en-de=runs/en-de/model de-en=runs/de-en/model`, then
    `curl localhost:5000/translate -d q="The dog is sleeping ." -d source=en -d target=de`
    """
    from importlib.util import find_spec

    for module in ("uvicorn", "fastapi", "prometheus_client"):
        if find_spec(module) is None:
            raise ImportError(f"the server needs {module}: pip install 'rela-attention[serve]'")
    from rela.explorer.examples import toy_examples
    from rela.server import app
    from rela.server.keys import read_keys
    from rela.server.languages import pair_of
    from rela.server.settings import ServerSettings

    settings = ServerSettings(
        batch=batch,
        latency_ms=latency_ms,
        queue=queue,
        concurrency=concurrency,
        max_body=max_body,
        max_texts=max_texts,
        max_characters=max_characters,
        max_beam=max_beam,
        timeout=timeout,
        read_timeout=read_timeout,
        grace=grace,
        api_keys=frozenset() if api_keys is None else read_keys(api_keys),
        origins=tuple(origin or ()),
        explorer=api_keys is None if explorer is None else explorer,
        precision=precision,
    )
    translators = load_models(models, device)
    for specification, name in zip(models, named_paths(models), strict=True):
        check_languages(specification, name, translators[name])
    first, translator = next(iter(translators.items()))
    examples = toy_examples(*(pair_of(first) or translator.languages))
    server = app.TranslationServer(translators, settings, examples)
    app.serve(server, host, port, lambda line: print(line, flush=True))


def check_languages(specification: str, name: str, translator: Translator) -> None:
    """Refuse a folder whose own name says other languages than its config: only its user knows which are right."""
    from rela.server.languages import pair_of

    said = pair_of(name)
    named_by_user = specification.startswith(f"{name}=")
    if said is not None and not named_by_user and said != translator.languages:
        raise ValueError(
            f"{specification} is called {name}, and its config says {' to '.join(translator.languages)}; "
            f"wanted SOURCE-TARGET={specification} to say which"
        )
