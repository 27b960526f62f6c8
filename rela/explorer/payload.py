"""What the page draws: the attention of one sentence pair as one JSON object, the same for server and export."""

from __future__ import annotations

import base64
import dataclasses
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from rela.analysis.capture import capture
from rela.analysis.links import AlignmentTable
from rela.analysis.nulls import null_rate
from rela.analysis.record import END, START, TYPES, AttentionRecord
from rela.analysis.sink import sink_mass
from rela.analysis.sparsity import sparsity_rate
from rela.analysis.words import merge_record, words
from rela.data.subwords import tidy
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks

SCHEMA = 1
"""Raised when a page of an older version could no longer read the payload."""
STEPS, SIGNED_STEPS = 255, 127
"""Sizes a weight can take between zero and its head's largest, without and with a sign."""
Table = list[list[float]]
"""[L][H]"""
FindGold = Callable[[str, str], GoldLinks | None]
"""The gold links of a source and a target, where these are known."""


@dataclass(frozen=True)
class Level:
    """The weights of one attention type over subwords or over words, with what was measured on them."""

    queries: list[str]
    keys: list[str]
    reach: list[int] | None
    """For each query how many keys, from the first, it may look at; None where it may look at all."""
    weights: str
    """[L, H, T, S] bytes, deflated, in base64; see `quantise`."""
    signed: bool
    largest: Table
    """The size that the largest byte of a head stands for."""
    sparsity: Table
    null_rate: Table
    sink: Table
    """The mean share of attention on `Attention.sink`."""


@dataclass(frozen=True)
class Attention:
    """One attention type of one pair."""

    kind: str
    layers: int
    heads: int
    sink: str
    """The key that takes what has nowhere to go: </s>, or <s> in the decoder, which sees no </s>."""
    subword: Level
    word: Level


@dataclass(frozen=True)
class Gold:
    """Gold links between words, [source, target], and how far each head of cross attention is from them."""

    sure: list[list[int]]
    possible: list[list[int]]
    aer: Table
    aer_shifted: Table


@dataclass(frozen=True)
class View:
    """Everything the page shows of one model and one sentence pair."""

    model: str
    source: str
    target: str
    forced: bool
    """Whether the target was given, or is the model's own translation."""
    log_prob: float
    """Of the target and its </s>."""
    attention: dict[str, Attention]
    gold: Gold | None
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def no_gold(source: str, target: str) -> None:
    """No gold links are known."""


def view_pair(
    translator: Translator, model: str, source: str, target: str | None = None, gold_of: FindGold = no_gold
) -> View:
    """Force a pair through a model, or translate the source first where no target is given."""
    forced = target is not None
    if target is None:
        translator.encode_pair(source, "")  # too long a source is an error here, where `translate` would cut it
        target = translator.translate([source])[0]
    (pair,) = capture(translator, [(source, target)])
    (scored,) = translator.score([source], [target])
    if not math.isfinite(scored.log_prob):
        raise ValueError("the log-probability of the target is no finite number; are the model's weights?")
    gold = gold_of(source, target)
    labels = {side: surface(translator, text) for side, text in (("source", source), ("target", target))}
    return View(
        model=model,
        source=source,
        target=target,
        forced=forced,
        log_prob=round(scored.log_prob, 4),
        attention={type: attention_of(pair[type], labels) for type in TYPES},
        gold=None if gold is None else compare_gold(pair["cross"], gold),
    )


def surface(translator: Translator, text: str) -> list[str]:
    """The pieces of a text as they were written: an unknown character is itself and not <unk>."""
    pieces: list[str] = translator.subwords.processor.encode(tidy(text), out_type=str)
    return pieces


def attention_of(record: AttentionRecord, labels: dict[str, list[str]]) -> Attention:
    """One record at both levels; `labels` are the pieces of source and target without <s> and </s>."""
    queries = [*labels["source" if record.type == "encoder" else "target"], END]
    keys = [START, *labels["target"]] if record.type == "decoder" else [*labels["source"], END]
    sink, position = (START, 0) if record.type == "decoder" else (END, -1)
    return Attention(
        kind=record.kind,
        layers=record.layers,
        heads=record.heads,
        sink=sink,
        subword=level_of(record, queries, keys, sink, position),
        word=level_of(merge_record(record), words(queries), words(keys), sink, position),
    )


def level_of(record: AttentionRecord, queries: Sequence[str], keys: Sequence[str], sink: str, position: int) -> Level:
    """One record as the page needs it, `position` being that of its sink among the keys."""
    weights, largest, signed = quantise(record.weights)
    # By position and not by name: someone may type </s>.
    names = [""] * len(keys)
    names[position] = sink
    return Level(
        queries=list(queries),
        keys=list(keys),
        reach=reach(record.allowed),
        weights=base64.b64encode(zlib.compress(weights.tobytes(), 1)).decode("ascii"),
        signed=signed,
        largest=[[float(f"{value:.6g}") for value in row] for row in largest.tolist()],
        sparsity=rounded(sparsity_rate(record)),
        null_rate=rounded(null_rate(record)),
        sink=rounded(sink_mass(dataclasses.replace(record, keys=tuple(names)), sink)),
    )


def quantise(weights: Tensor) -> tuple[np.ndarray, np.ndarray, bool]:
    """Bytes [L, H, T, S], the largest size [L, H], and whether there are negative weights.

    A byte b stands for b / 255 of its head's largest weight, or, with negative weights, for (b − 128) / 127 of it.
    Exactly zero stays exactly zero and nothing else becomes zero, so null rows and sparsity survive.
    """
    values = weights.double().cpu().numpy()
    if not np.isfinite(values).all():
        raise ValueError("some attention weights are no finite numbers; are the model's weights?")
    signed = bool((values < 0).any())
    largest = np.abs(values).max(axis=(-2, -1), initial=0.0)
    steps = SIGNED_STEPS if signed else STEPS
    share = np.abs(values) / np.where(largest > 0, largest, 1.0)[..., None, None]
    size = np.where(values == 0, 0.0, np.clip(np.rint(share * steps), 1, steps))
    codes = np.sign(values) * size + (SIGNED_STEPS + 1 if signed else 0)
    return codes.astype(np.uint8), largest, signed


def dequantise(level: Level, layers: int, heads: int) -> np.ndarray:
    """[L, H, T, S], the weights that a level's bytes stand for; what the page's script does."""
    codes = np.frombuffer(zlib.decompress(base64.b64decode(level.weights)), dtype=np.uint8).astype(float)
    shares = (codes - SIGNED_STEPS - 1) / SIGNED_STEPS if level.signed else codes / STEPS
    largest = np.array(level.largest)[..., None, None]  # [L, H, 1, 1]
    weights: np.ndarray = shares.reshape(layers, heads, len(level.queries), len(level.keys)) * largest
    return weights


def reach(allowed: Tensor) -> list[int] | None:
    """How many keys each query may look at, if they are the first ones; None if each may look at all."""
    counts = allowed.sum(dim=-1)
    S = allowed.size(-1)
    for row, count in enumerate(counts.tolist()):
        if not bool(allowed[row, :count].all()):
            raise ValueError(f"query {row} may not look at the first {count} keys, and looks at others")
    return None if bool((counts == S).all()) else counts.tolist()


def compare_gold(record: AttentionRecord, gold: GoldLinks) -> Gold:
    """Gold links of a pair, and the alignment error rate of every head against them."""
    rates = []
    for shifted in (False, True):
        table = AlignmentTable(shifted)
        table.add(record, gold)
        rates.append([[round(score.aer, 4) for score in row] for row in table.scores().heads])
    return Gold([list(link) for link in sorted(gold.sure)], [list(link) for link in sorted(gold.possible)], *rates)


def rounded(values: Tensor) -> Table:
    return [[round(value, 4) for value in row] for row in values.tolist()]
