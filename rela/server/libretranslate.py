"""LibreTranslate's interface, so that its clients work: /translate, /languages, /detect and what they ask besides.

A request is JSON, a form (urlencoded or multipart) or a query string. A text may have several sentences and lines; each
sentence is translated by itself, and what stands between them is kept. The tags of HTML are kept as `rela translate`
keeps them, and so are URLs, {name}, emoji and the like, unless alternatives are asked for. The source "auto" is the
language that a text is detected to be in, each text of a list by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from rela.markup.documents import parse_document
from rela.markup.placeholders import find_placeholders
from rela.server.detection import Detected, detect_source, rank_languages
from rela.server.keys import check_key, key_of
from rela.server.languages import name_of
from rela.server.limits import check_texts
from rela.server.models import Search, ServedModel, ServedModels
from rela.server.refusals import describe_refusals
from rela.server.settings import ServerSettings
from rela.server.texts import Layout
from rela.web.refused import Busy, Refused

Found = TypeVar("Found")
FIELDS = {
    "q": {
        "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "A text, or several.",
        "example": "The dog is sleeping .",
    },
    "source": {
        "type": "string",
        "description": "Code of the source language, or auto: the one that is detected.",
        "example": "en",
    },
    "target": {"type": "string", "description": "Code of the target language.", "example": "de"},
    "format": {"type": "string", "enum": ["text", "html"], "description": "html keeps tags in their places."},
    "alternatives": {
        "type": "integer",
        "minimum": 0,
        "description": "Further translations of each text, at most; none with format html.",
    },
    "api_key": {"type": "string", "description": "Where the server wants one."},
}


def body_of(required: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    """The description of a request, which may be JSON or a form."""
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    schema = {"type": "object", "required": required, "properties": fields}
    return {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}


REFUSALS = describe_refusals({400: "The request cannot be answered.", 403: "No known API key came."})
DETECTED = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {
        "confidence": {"type": "number", "minimum": 0, "maximum": 100},
        "language": {"type": "string"},
    },
}
ANSWER = {
    "type": "object",
    "required": ["translatedText"],
    "properties": {
        "translatedText": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "detectedLanguage": {"oneOf": [DETECTED, {"type": "array", "items": DETECTED}]},
        "alternatives": {"type": "array"},
    },
}
LANGUAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["code", "name", "targets"],
        "properties": {
            "code": {"type": "string"},
            "name": {"type": "string"},
            "targets": {"type": "array", "items": {"type": "string"}},
        },
    },
}


def make_router(models: ServedModels, settings: ServerSettings) -> APIRouter:
    """The routes of LibreTranslate that this server has."""
    router = APIRouter(tags=["LibreTranslate"])

    async def read_asked(request: Request) -> dict[str, Any]:
        fields = read_fields(request, await request.body())
        try:
            check_key(key_of(request) or as_text(fields, "api_key", ""), settings.api_keys)
        except Refused as error:
            raise Refused(f"{error}, or as api_key", 403) from None
        return fields

    @router.post(
        "/translate",
        responses={**REFUSALS, 200: {"content": {"application/json": {"schema": ANSWER}}}},
        openapi_extra={"requestBody": body_of(["q", "source", "target"], FIELDS)},
    )
    async def translate(request: Request) -> JSONResponse:
        """Translate a text, or several."""
        try:
            return JSONResponse(await answer(models, settings, await read_asked(request)))
        except Refused as error:
            raise as_libretranslate(error) from None

    @router.get("/languages", responses={200: {"content": {"application/json": {"schema": LANGUAGES}}}})
    async def languages() -> JSONResponse:
        """The source languages, each with the languages it can be translated to."""
        targets: dict[str, list[str]] = {}
        for model in models:
            into = targets.setdefault(model.source, [])
            into += [model.target] if model.target not in into else []
        return JSONResponse([{"code": code, "name": name_of(code), "targets": into} for code, into in targets.items()])

    @router.post(
        "/detect",
        responses={
            **REFUSALS,
            200: {"content": {"application/json": {"schema": {"type": "array", "items": DETECTED}}}},
        },
        openapi_extra={"requestBody": body_of(["q"], {name: FIELDS[name] for name in ("q", "api_key")})},
    )
    async def detect(request: Request) -> JSONResponse:
        """The models' languages, with the confidence (0 to 100) that a text is in each, best first."""
        try:
            texts, _ = texts_of(await read_asked(request))
            check_texts(texts, settings)
            languages = [code for model in models for code in (model.source, model.target)]
            ranked = await detecting(rank_languages, "\n".join(texts), languages)
        except Refused as error:
            raise as_libretranslate(error) from None
        return JSONResponse([found.as_libretranslate() for found in ranked])

    @router.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """What LibreTranslate's web page asks for: limits, and what is not offered."""
        first = next(iter(models))
        codes = {"source": first.source, "target": first.target}
        language = {side: {"code": code, "name": name_of(code)} for side, code in codes.items()}
        return {
            "apiKeys": bool(settings.api_keys),
            "charLimit": settings.max_characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": bool(settings.api_keys),
            "language": language,
            "suggestions": False,
            "supportedFilesFormat": [],
        }

    return router


async def answer(models: ServedModels, settings: ServerSettings, fields: dict[str, Any]) -> dict[str, Any]:
    """What LibreTranslate's clients get for the fields of a request."""
    texts, several = texts_of(fields)
    source, target = as_text(fields, "source"), as_text(fields, "target")
    if (kind := as_text(fields, "format", "text")) not in ("text", "html"):
        raise Refused(f"format is {kind[:40]!r}; wanted text or html")
    alternatives = as_number(fields, "alternatives", settings.max_beam - 1)
    models.find(None, None if source == "auto" else source, target)
    check_texts(texts, settings)
    detected = await detect_sources(models, texts, target, kind) if source == "auto" else []
    languages = [one.language for one in detected] or [source] * len(texts)
    found: list[list[str]] = [[]] * len(texts)
    for language in dict.fromkeys(languages):
        indices = [index for index, other in enumerate(languages) if other == language]
        asked = [texts[index] for index in indices]
        if detected and language == target:
            answers = [[text] for text in asked]  # nothing to translate
        else:
            answers = await translate_from(models.find(None, language, target), asked, kind, alternatives)
        for index, best in zip(indices, answers, strict=True):
            found[index] = list(dict.fromkeys(best))  # two segmentations of one text may both be found
    answered: dict[str, Any] = {"translatedText": [best[0] for best in found] if several else found[0][0]}
    if alternatives:
        answered["alternatives"] = [best[1:] for best in found] if several else found[0][1:]
    if detected:
        described = [one.as_libretranslate() for one in detected]
        answered["detectedLanguage"] = described if several else described[0]
    return answered


async def translate_from(model: ServedModel, texts: list[str], kind: str, alternatives: int) -> list[list[str]]:
    """Of each text the best translation and its alternatives."""
    if kind == "html" or (not alternatives and any(map(find_placeholders, texts))):
        format = "html" if kind == "html" else "txt"
        return [[text] for text in await model.translate_documents(texts, format)]
    return await translate_texts(model, texts, alternatives)


async def detect_sources(models: ServedModels, texts: list[str], target: str, kind: str) -> list[Detected]:
    """The language of each text; of HTML, that of its words."""
    sources = list(dict.fromkeys(model.source for model in models if model.target == target))
    words = texts
    if kind == "html":
        words = ["\n".join(passage.text for passage in parse_document(text, "html").passages) for text in texts]
    return [await detecting(detect_source, text, sources, target) for text in words]


async def detecting(detect: Callable[..., Found], *asked: Any) -> Found:
    """What a function of rela.server.detection finds, in a thread of its own."""
    try:
        return await asyncio.to_thread(detect, *asked)
    except (ImportError, ValueError) as error:
        raise Refused(str(error)) from None


async def translate_texts(model: ServedModel, texts: list[str], alternatives: int) -> list[list[str]]:
    """Of each text the best translation and `alternatives` others: the n-th has the n-th best of each sentence."""
    layouts = [Layout.of(text) for text in texts]
    sentences = [sentence for layout in layouts for sentence in layout.sentences]
    check_texts(sentences, model.settings)
    nbest = 1 + alternatives
    beam = nbest if nbest > model.decode.beam else None
    found = iter(await model.translate(sentences, Search(beam, nbest)) if sentences else [])
    answers = []
    for layout in layouts:
        best = [[one.text for one in next(found)] for _ in layout.sentences]
        ranks = range(max((len(ranked) for ranked in best), default=1))
        answers.append([layout.fill([ranked[min(rank, len(ranked) - 1)] for ranked in best]) for rank in ranks])
    return answers


def read_fields(request: Request, body: bytes) -> dict[str, Any]:
    """The fields of a request, whichever way they came."""
    kind = request.headers.get("content-type", "")
    name = kind.partition(";")[0].strip().lower()
    if name == "application/json":
        try:
            fields = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            raise Refused("the request is no valid JSON in UTF-8") from None
        if not isinstance(fields, dict):
            raise Refused("the request is no JSON object")
        return fields
    fields = dict(request.query_params)
    try:
        if name == "application/x-www-form-urlencoded":
            fields |= dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=100))
        elif name == "multipart/form-data":
            fields |= multipart_fields(kind, body)
    except ValueError:
        raise Refused(f"the request is no valid {name} in UTF-8") from None
    return fields


def multipart_fields(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a multipart form, which is a MIME message."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise ValueError("no parts")
    fields = {}
    for part in message.iter_parts():
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            fields[name] = content.decode("utf-8")
    return fields


def texts_of(fields: dict[str, Any]) -> tuple[list[str], bool]:
    """The texts to translate, and whether they came as a list."""
    q = fields.get("q")
    if isinstance(q, str):
        return [q], False
    if isinstance(q, list) and q and all(isinstance(text, str) for text in q):
        return q, True
    raise Refused("q is missing, or neither a text nor a list of texts")


def as_text(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    """A field that has to be a text."""
    value = fields.get(name)
    value = default if value in (None, "") and default is not None else value  # as LibreTranslate takes them
    if not isinstance(value, str):
        raise Refused(f"{name} is missing, or no text")
    return value


def as_number(fields: dict[str, Any], name: str, largest: int) -> int:
    """A whole number of a form or of JSON; 0 if it is not there."""
    value = fields.get(name, 0)
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= largest):
        raise Refused(f"{name} is {str(value)[:40]!r}; wanted a whole number from 0 to {largest}")
    return int(text)


def as_libretranslate(error: Refused) -> Refused:
    """A refusal with the status that LibreTranslate's clients expect: 400 for whatever is wrong with a request."""
    if isinstance(error, Busy) or error.status not in (404, 413, 422):
        return error
    return Refused(str(error), 400)
