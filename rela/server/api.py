"""The server's own interface, under /v1: the command line's questions, answered alike."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from rela.data.corpus import is_empty
from rela.decoding.translate import Scored
from rela.server.keys import check_key, key_of
from rela.server.limits import check_sentences, check_texts
from rela.server.models import Pair, Search, ServedModel, ServedModels
from rela.server.refusals import describe_refusals
from rela.server.schemas import (
    AlignAnswer,
    Asked,
    CheckAnswer,
    CheckedPair,
    Hypothesis,
    ModelDescription,
    PairsRequest,
    Score,
    ScoreAnswer,
    ScoreRequest,
    TranslateAnswer,
    TranslateRequest,
)
from rela.server.settings import ServerSettings
from rela.web.refused import Refused

REFUSALS = describe_refusals(
    {
        400: "The request is no text in UTF-8.",
        401: "No known API key came.",
        404: "No model has this name or these languages.",
        422: "The request is not as described.",
    }
)


def make_router(models: ServedModels, settings: ServerSettings) -> APIRouter:
    """The routes of the server's own interface."""

    async def with_key(request: Request) -> None:
        check_key(key_of(request), settings.api_keys)

    router = APIRouter(prefix="/v1", tags=["rela"], responses=REFUSALS, dependencies=[Depends(with_key)])

    def find(asked: Asked) -> ServedModel:
        return models.find(asked.model, asked.source, asked.target)

    @router.get("/models")
    async def list_models() -> list[ModelDescription]:
        """The models of this server, with their languages."""
        return [describe(model) for model in models]

    @router.post("/translate")
    async def translate(asked: TranslateRequest) -> TranslateAnswer:
        """Translate sentences, as `rela translate` does with the same lines."""
        model = find(asked)
        check_texts(asked.texts, settings)
        check_sentences("text", asked.texts)
        found = await model.translate(asked.texts, search_of(asked, settings))
        answers = [[Hypothesis(text=h.text, score=h.score, log_prob=h.log_prob) for h in best] for best in found]
        return TranslateAnswer(model=model.name, translations=answers)

    @router.post("/score", response_model_exclude_unset=True)
    async def score(asked: ScoreRequest) -> ScoreAnswer:
        """The log-probability that a model gives to each translation, as `rela score` prints it."""
        model, pairs = find(asked), pairs_of(asked, settings)
        found = await model.score(pairs)
        scores = [score_of(pair, one, asked.tokens) for pair, one in zip(pairs, found, strict=True)]
        return ScoreAnswer(model=model.name, scores=scores)

    @router.post("/align")
    async def align(asked: PairsRequest) -> AlignAnswer:
        """The word links of sentence pairs, as `rela align` prints them with heads that were chosen before."""
        model, pairs = find(asked), pairs_of(asked, settings)
        found = await model.align(pairs)
        return AlignAnswer(
            model=model.name,
            alignments=[[list(link) for link in links] for links in found],
            read_from=str(model.aligner.choice),
            chosen=model.aligner.chosen,
        )

    @router.post("/check")
    async def check(asked: PairsRequest) -> CheckAnswer:
        """Bad translations and their words, as `rela check` finds them with this model alone."""
        model, pairs = find(asked), pairs_of(asked, settings)
        checks = [CheckedPair.model_validate(found.row()) for found in await model.check(pairs)]
        return CheckAnswer(model=model.name, calibrated=model.checker.detector is not None, checks=checks)

    return router


def search_of(asked: TranslateRequest, settings: ServerSettings) -> Search:
    """How a request wants its translations searched, if that is not too much."""
    for name, value in (("beam", asked.beam or 1), ("nbest", asked.nbest)):
        if value > settings.max_beam:
            raise Refused(f"{name} is {value}; this server takes at most {settings.max_beam}")
    return Search(asked.beam, asked.nbest, asked.length_penalty)


def pairs_of(asked: PairsRequest, settings: ServerSettings) -> list[Pair]:
    """The sentence pairs of a request, if they are not too many."""
    pairs = [(pair.source, pair.target) for pair in asked.pairs]
    check_texts([text for pair in pairs for text in pair], settings, count=len(pairs))
    for name, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        check_sentences(name, texts)
    return pairs


def score_of(pair: Pair, found: Scored, tokens: bool) -> Score:
    """What is said of one pair: nothing but null where a side is empty, as `rela score` has it."""
    empty = is_empty(*pair)
    log_prob = None if empty else found.log_prob
    if not tokens:
        return Score.model_validate({"log_prob": log_prob})
    pieces, log_probs = ([], []) if empty else (list(found.pieces), list(found.log_probs))
    return Score(log_prob=log_prob, pieces=pieces, log_probs=log_probs)


def describe(model: ServedModel) -> ModelDescription:
    """A model as the server lists it."""
    shape = model.translator.config.model
    return ModelDescription(
        name=model.name,
        source=model.source,
        target=model.target,
        kinds=shape.attention_kinds,
        max_subwords=shape.max_length - 1,
    )
