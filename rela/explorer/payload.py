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
import torch
from torch import Tensor

from rela.analysis.ablation import Head, without_heads
from rela.analysis.capture import Encoded, capture_batch, encode
from rela.analysis.links import AlignmentTable, layer_attention
from rela.analysis.nulls import null_rate
from rela.analysis.record import END, START, TYPES, AttentionRecord
from rela.analysis.sink import sink_mass
from rela.analysis.sparsity import sparsity_rate
from rela.analysis.words import merge_record, word_index
from rela.data.subwords import NO_BREAK, UNK, WORD_START, Subwords
from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks

SCHEMA = 2
"""Raised when a page of an older version could no longer read the payload."""
STEPS, SIGNED_STEPS = 255, 127
"""Sizes a weight can take between zero and its head's largest, without and with a sign."""
SHIFTED = "shifted"
"""Cross attention whose rows stand one step later: each target word takes the row of the step that reads it."""
Table = list[list[float]]
"""[L][H + 1]: the heads of each layer and, last, its layer attention, the mean of its heads."""
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
    """[L, H + 1, T, S] bytes, deflated, in base64, the last of each layer its layer attention; see `quantise`."""
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
    """H; the weights have one matrix more in each layer, the layer attention."""
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
class Ablation:
    """What heads that are switched off change."""

    off: list[Head]
    translation: str
    """The model's own, without these heads."""
    translation_before: str
    """The model's own, with all heads."""
    log_prob_before: float
    """Of the target shown, with all heads."""


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
    log_probs: dict[str, list[float]]
    """The same for each target word and for each subword ("word", "subword"), </s> last."""
    null_rate: float
    """Of cross attention, over the rows of subwords and all heads, as `rela analyse` takes it."""
    unknown: dict[str, list[str]]
    """What the model has no subword for, in "source" and in "target"; it reads <unk> there."""
    attention: dict[str, Attention]
    """Encoder, decoder, cross and shifted."""
    gold: Gold | None
    ablation: Ablation | None = None
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def no_gold(source: str, target: str) -> None:
    """No gold links are known."""


def view_pair(
    translator: Translator,
    model: str,
    source: str,
    target: str | None = None,
    gold_of: FindGold = no_gold,
    off: Sequence[Head] = (),
    tokenised: bool = False,
) -> View:
    """Force a pair through a model, or translate the source first where no target is given.

    The heads of `off` are switched off. A `tokenised` source or target is shown to the model as raw text.
    """
    forced, used = target is not None, without_heads(translator, off) if off else translator
    read = encode(translator, source, "", tokenised)[0]  # too long a source is an error, where `translate` would cut it
    # The heads alone may make a difference, so both translations come from one engine.
    options = {"engine": "reference"} if off else {}
    own = used.translate([read.text], **options)[0] if off or target is None else ""
    target = own if target is None else target
    pair = read, encode(translator, "", target, tokenised and forced)[1]
    log_probs = log_probs_of(used, pair)
    records = capture_batch(used, [pair], TYPES)[0]
    gold = gold_of(source, target)
    written = surface(translator.subwords.source, pair[0]), surface(translator.subwords, pair[1])
    shown = {**records, SHIFTED: shift(records["cross"])}
    ablation = None
    if off:
        before = translator.translate([read.text], **options)[0]
        ablation = Ablation(list(off), own, before, round(sum(log_probs_of(translator, pair)), 4))
    return View(
        model=model,
        source=source,
        target=target,
        forced=forced,
        log_prob=round(sum(log_probs), 4),
        log_probs=by_word(log_probs, pair[1]),
        null_rate=round(float(null_rate(records["cross"]).mean()), 4),
        unknown=dict(zip(("source", "target"), map(unknown_pieces, pair, written), strict=True)),
        attention={type: attention_of(record, *written, type == SHIFTED) for type, record in shown.items()},
        gold=None if gold is None else compare_gold(records["cross"], gold),
        ablation=ablation,
    )


def log_probs_of(translator: Translator, pair: tuple[Encoded, Encoded]) -> list[float]:
    """The log-probability of each subword of a target and of its </s>."""
    (found,) = translator.pipeline.score([(pair[0].ids, pair[1].ids)], translator.config.decode)
    if not all(map(math.isfinite, found)):
        raise ValueError("the log-probability of the target is no finite number; are the model's weights?")
    return found


def by_word(log_probs: Sequence[float], target: Encoded) -> dict[str, list[float]]:
    """The log-probabilities of subwords, and those of words, which are their sums."""
    index = word_index([*target.pieces, END])
    sums = [0.0] * (index[-1] + 1)
    for word, value in zip(index, log_probs, strict=True):
        sums[word] += value
    return {"word": [round(value, 4) for value in sums], "subword": [round(value, 4) for value in log_probs]}


def surface(subwords: Subwords, side: Encoded) -> list[str]:
    """The pieces of a text as they were written, an unknown character as itself and not as <unk>.

    They begin words where the record's pieces do: not after a no-break space, and at every token of tokenised text.
    """
    written: list[str] = subwords.processor.encode(subwords.readable(side.text), out_type=str)
    marks = [next((mark for mark in (WORD_START, NO_BREAK) if piece.startswith(mark)), "") for piece in side.pieces]
    return [mark + piece.removeprefix(WORD_START) for mark, piece in zip(marks, written, strict=True)]


def unknown_pieces(side: Encoded, written: Sequence[str]) -> list[str]:
    """What the model has no subword for, each once."""
    found = [piece.strip(WORD_START) for index, piece in zip(side.ids, written, strict=True) if index == UNK]
    return list(dict.fromkeys(found))


def shift(record: AttentionRecord) -> AttentionRecord:
    """Cross attention in which each target token has the row of the next step, whose input it is."""
    return dataclasses.replace(record, weights=record.weights[:, :, 1:], queries=record.queries[:-1])


def with_layer_attention(record: AttentionRecord) -> AttentionRecord:
    """[L, H + 1, T, S]: the heads and, last, their mean."""
    mean = layer_attention(record.weights)[:, None]
    return dataclasses.replace(record, weights=torch.cat([record.weights, mean], 1))


def attention_of(record: AttentionRecord, source: list[str], target: list[str], shifted: bool = False) -> Attention:
    """One record at both levels; `source` and `target` are the pieces as written, without <s> and </s>."""
    queries = source if record.type == "encoder" else target
    queries = queries if shifted else [*queries, END]
    keys = [START, *target] if record.type == "decoder" else [*source, END]
    sink, position = (START, 0) if record.type == "decoder" else (END, -1)
    record = with_layer_attention(record)
    merged = merge_record(record)
    words = spelled(queries, record.queries), spelled(keys, record.keys)
    return Attention(
        kind=record.kind,
        layers=record.layers,
        heads=record.heads - 1,
        sink=sink,
        subword=level_of(record, queries, keys, sink, position),
        word=level_of(merged, *words, sink, position),
    )


def spelled(written: Sequence[str], pieces: Sequence[str]) -> list[str]:
    """The words of pieces as they were written."""
    index = word_index(pieces)
    found = [""] * (index[-1] + 1 if index else 0)
    for word, piece in zip(index, written, strict=True):
        found[word] += piece.removeprefix(WORD_START)
    return found


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
    """[L, H + 1, T, S], the weights that a level's bytes stand for; what the page's script does."""
    codes = np.frombuffer(zlib.decompress(base64.b64decode(level.weights)), dtype=np.uint8).astype(float)
    shares = (codes - SIGNED_STEPS - 1) / SIGNED_STEPS if level.signed else codes / STEPS
    largest = np.array(level.largest)[..., None, None]  # [L, H, 1, 1]
    weights: np.ndarray = shares.reshape(layers, heads + 1, len(level.queries), len(level.keys)) * largest
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
        scores = table.scores()
        rates.append(
            [
                [round(score.aer, 4) for score in (*row, layer)]
                for row, layer in zip(scores.heads, scores.layers, strict=True)
            ]
        )
    return Gold([list(link) for link in sorted(gold.sure)], [list(link) for link in sorted(gold.possible)], *rates)


def rounded(values: Tensor) -> Table:
    """Four digits of each; where there is no row to measure, as in shifted attention of an empty target, 0."""
    return [[round(value, 4) for value in row] for row in values.nan_to_num().tolist()]
