"""What the server's own interface takes and gives, as its OpenAPI description says it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def whole(value: Any) -> Any:
    """A number such as 2.0 as a whole one, which it is in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Sentence = Annotated[str, Field(description="One sentence, without a line break.", examples=["The dog is sleeping ."])]
WordLink = Annotated[list[int], Field(min_length=2, max_length=2, examples=[[0, 0]])]
Whole = Annotated[int, BeforeValidator(whole)]


class Asked(BaseModel):
    """A request: types are not converted, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str | None = Field(None, description="Name of a model; the first that fits if left out.")
    source: str | None = Field(None, description="Code of the source language, such as en.")
    target: str | None = Field(None, description="Code of the target language, such as de.")


class SentencePair(BaseModel):
    """A sentence and its translation."""

    model_config = ConfigDict(extra="forbid", strict=True)
    source: Sentence
    target: Sentence


class TranslateRequest(Asked):
    """Sentences to translate."""

    texts: list[Sentence] = Field(min_length=1)
    beam: Whole | None = Field(None, ge=1, le=1024, description="Beam size; the model's own if left out, 1 is greedy.")
    nbest: Whole = Field(1, ge=1, le=1024, description="Translations of each sentence, at most the beam.")
    length_penalty: float | None = Field(
        None, ge=0, le=10, allow_inf_nan=False, description="α of ((5 + length) / 6)^α."
    )


class PairsRequest(Asked):
    """Sentence pairs to score or to align."""

    pairs: list[SentencePair] = Field(min_length=1)


class ScoreRequest(PairsRequest):
    """Sentence pairs to score."""

    tokens: bool = Field(False, description="Also the log-probability of each subword.")


class Hypothesis(BaseModel):
    """One translation."""

    text: str
    score: float = Field(description="Log-probability over the length penalty: what search ranks by.")
    log_prob: float


class TranslateAnswer(BaseModel):
    """For each text its translations, best first."""

    model: str
    translations: list[list[Hypothesis]]


class Score(BaseModel):
    """How probable a model finds a translation."""

    log_prob: float | None = Field(
        description="Of the target with its </s>; null if the source or the target is empty."
    )
    pieces: list[str] | None = Field(None, description="The target's subwords and </s>.")
    log_probs: list[float] | None = Field(None, description="One for each piece.")


class ScoreAnswer(BaseModel):
    """The log-probability of each target given its source."""

    model: str
    scores: list[Score]


class AlignAnswer(BaseModel):
    """For each pair its links, [source word, target word], words counted from 0."""

    model: str
    alignments: list[list[WordLink]]
    read_from: str = Field(description="The layer and heads that links are read from.")
    chosen: bool = Field(description="Whether these were chosen for this model; `rela fit-aligner` does it.")


class CheckedWord(BaseModel):
    """One word of a pair; see `rela check`."""

    word: str
    null: float | None
    log_prob: float | None
    lacking: float | None
    link: float | None
    missing: float | None
    attention: float | None
    flagged: bool = Field(description="A target word without a source, or a source word left untranslated.")


class CheckedPair(BaseModel):
    """What is known of one pair; a pair with a problem has no numbers."""

    problem: str
    score: float | None = Field(description="High is bad; from 0 to 1 if the model is calibrated.")
    verdict: str = Field(description="ok, notice or warn; empty if the model is not calibrated.")
    log_prob: float | None
    contrast: float | None
    null_rate: float | None
    target_words: list[CheckedWord] | None
    source_words: list[CheckedWord] | None


class CheckAnswer(BaseModel):
    """How good each target is as a translation of its source."""

    model: str
    calibrated: bool = Field(description="Whether `rela check --calibrate` was run; if not, no word is marked.")
    checks: list[CheckedPair]


class ModelDescription(BaseModel):
    """A model of this server."""

    name: str
    source: str
    target: str
    kinds: dict[str, str] = Field(description="The attention kind of encoder, decoder and cross attention.")
    max_subwords: int = Field(description="Of a sentence.")


class Error(BaseModel):
    """Why a request was refused."""

    error: str


class Health(BaseModel):
    """Whether requests are answered."""

    status: str = Field(description="ok, or stopping, or failed.")
