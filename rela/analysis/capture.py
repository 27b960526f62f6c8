"""Attention weights of given sentence pairs, by forced decoding: a model and text in, records out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from rela.analysis.ablation import attentions_of
from rela.analysis.record import END, START, TYPES, AttentionRecord
from rela.analysis.tokenised import pieces_by_token, raw_text
from rela.data.subwords import joined, split_words
from rela.decoding.forced import observed
from rela.decoding.translate import Translator
from rela.decoding.windows import batches_by_length
from rela.errors import RunFailed

# Pairs that are read, sorted by length and run through the model together.
WINDOW = 512
# Of the padded pairs of a batch; the weights of all layers and heads are held at once.
BATCH_TOKENS = 2048


@dataclass(frozen=True)
class PairRecords:
    """The three attention types of one sentence pair."""

    source: str
    target: str
    records: dict[str, AttentionRecord]

    def __getitem__(self, type: str) -> AttentionRecord:
        return self.records[type]


def capture(
    translator: Translator,
    pairs: Iterable[tuple[str, str]],
    types: tuple[str, ...] = TYPES,
    batch_tokens: int = BATCH_TOKENS,
    tokenised: bool = False,
) -> Iterator[PairRecords]:
    """The records of each pair, in order; pairs are read as they are needed, so a corpus of any size may come.

    `tokenised` pairs are shown to the model as raw text, and the words of their records are the tokens all the same.
    """
    stream = iter(pairs)
    while window := list(islice(stream, WINDOW)):
        encoded = [encode(translator, source, target, tokenised) for source, target in window]
        ids = [(source.ids, target.ids) for source, target in encoded]
        found: list[PairRecords | None] = [None] * len(window)
        for batch in batches_by_length([max(len(s), len(t)) for s, t in ids], batch_tokens):
            records = capture_batch(translator, [encoded[i] for i in batch], types)
            for i, record in zip(batch, records, strict=True):
                found[i] = PairRecords(*window[i], record)
        yield from (item for item in found if item is not None)


@dataclass(frozen=True)
class Encoded:
    """One side of a pair: its subwords, and how they are written in the record."""

    ids: list[int]
    pieces: tuple[str, ...]
    text: str = ""
    """What the ids were made of, where they were made of text: raw text if tokens were given."""


def encode(translator: Translator, source: str, target: str, tokenised: bool) -> tuple[Encoded, Encoded]:
    """Both sides as the model reads them.

    A tokenised side whose pieces do not spell its tokens letter by letter is read as it is.
    """
    sides = [source, target]
    vocabularies = translator.subwords.source, translator.subwords
    pieces: list[tuple[str, ...] | None] = [None, None]
    if tokenised:
        for i, tokens in enumerate((split_words(source), split_words(target))):
            ids = vocabularies[i].encode(raw_text(tokens))
            pieces[i] = pieces_by_token(vocabularies[i].pieces(ids), tokens)
            sides[i] = sides[i] if pieces[i] is None else raw_text(tokens)
    pair = translator.encode_pair(*sides)
    first, second = (
        Encoded(ids, joined(vocabulary.pieces(ids), text) if marked is None else marked, text)
        for ids, marked, text, vocabulary in zip(pair, pieces, sides, vocabularies, strict=True)
    )
    return first, second


@torch.inference_mode()
def capture_batch(
    translator: Translator, pairs: list[tuple[Encoded, Encoded]], types: tuple[str, ...]
) -> list[dict[str, AttentionRecord]]:
    """One forward over a batch of encoded pairs; for each, the record of every type asked for."""
    model = translator.model
    attentions = attentions_of(model)
    kinds = translator.config.model.attention_kinds
    batch = translator.pack_evenly([(source.ids, target.ids) for source, target in pairs])
    with contextlib.ExitStack() as stack:
        seen = {type: stack.enter_context(observed(attentions[type])) for type in types}
        model(*batch.inputs)
    # [L, B, H, T, S], all pairs in one copy to the host
    together = {type: torch.stack(weights).cpu() for type, weights in seen.items()}
    answers = []
    for i, (source, target) in enumerate(pairs):
        keys, words = (*source.pieces, END), target.pieces
        tokens = {"encoder": (keys, keys), "decoder": ((*words, END), (START, *words)), "cross": ((*words, END), keys)}
        records = {}
        for type, weights in together.items():
            queries, looked_at = tokens[type]
            one = weights[:, i, :, : len(queries), : len(looked_at)].clone()
            if not bool(one.isfinite().all()):
                raise RunFailed(f"a weight of {type} attention is no finite number; are the model's weights too large?")
            records[type] = AttentionRecord(kinds[type], type, one, queries, looked_at)
        answers.append(records)
    return answers
