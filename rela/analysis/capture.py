"""Attention weights of given sentence pairs, by forced decoding: a model and text in, records out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from rela.analysis.record import END, START, TYPES, AttentionRecord
from rela.attention.multihead import MultiheadAttention
from rela.attention.packed import allowed_pairs, pad
from rela.attention.reference import attention_weights
from rela.decoding.translate import Translator, batches_by_length, model_inputs

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
) -> Iterator[PairRecords]:
    """The records of each pair, in order; pairs are read as they are needed, so a corpus of any size may come."""
    stream = iter(pairs)
    while window := list(islice(stream, WINDOW)):
        ids = [translator.encode_pair(source, target) for source, target in window]
        found: list[PairRecords | None] = [None] * len(window)
        for batch in batches_by_length([max(len(s), len(t)) for s, t in ids], batch_tokens):
            records = capture_batch(translator, [ids[i] for i in batch], types)
            for i, record in zip(batch, records, strict=True):
                found[i] = PairRecords(*window[i], record)
        yield from (item for item in found if item is not None)


@torch.inference_mode()
def capture_batch(
    translator: Translator, pairs: list[tuple[list[int], list[int]]], types: tuple[str, ...]
) -> list[dict[str, AttentionRecord]]:
    """One forward over a batch of encoded pairs; for each, the record of every type asked for."""
    model, shape = translator.model, translator.config.model
    attentions = {
        "encoder": [layer.attention for layer in model.encoder],
        "decoder": [layer.attention for layer in model.decoder],
        "cross": [layer.cross for layer in model.decoder],
    }
    kinds = {"encoder": shape.encoder_attention, "decoder": shape.decoder_attention, "cross": shape.cross_attention}
    batch = translator.pack_evenly(pairs)
    with contextlib.ExitStack() as stack:
        seen = {type: stack.enter_context(observed(attentions[type])) for type in types}
        model(*model_inputs(batch))
    answers = []
    for i, (source, target) in enumerate(pairs):
        keys = (*translator.subwords.pieces(source), END)
        words = tuple(translator.subwords.pieces(target))
        tokens = {"encoder": (keys, keys), "decoder": ((*words, END), (START, *words)), "cross": ((*words, END), keys)}
        records = {}
        for type, weights in seen.items():
            queries, looked_at = tokens[type]
            one = torch.stack([layer[i, :, : len(queries), : len(looked_at)] for layer in weights])
            records[type] = AttentionRecord(kinds[type], type, one.cpu(), queries, looked_at)
        answers.append(records)
    return answers


@contextlib.contextmanager
def observed(attentions: list[MultiheadAttention]) -> Iterator[list[Tensor]]:
    """While this is open, each packed forward of the attentions adds its weights [B, H, T, S] to the list."""
    weights: list[Tensor] = []

    def listen(attention: MultiheadAttention):
        def observe(q, k, cu_queries, cu_keys, max_queries, max_keys, causal) -> None:
            dense_q, dense_k = pad(q, cu_queries, max_queries), pad(k, cu_keys, max_keys)
            allowed = allowed_pairs(cu_queries, cu_keys, max_queries, max_keys, causal)
            name, scale = attention.kind.weights, attention.head_dim**-0.5
            alpha = attention_weights(dense_q, dense_k, name, scale, allowed, None, attention.threshold)
            if name == "softmax":  # never zero, but for the exponential's underflow far below the largest score
                alpha = torch.where(allowed, alpha.clamp(min=torch.finfo(alpha.dtype).tiny), alpha)
            weights.append(alpha)

        return observe

    try:
        for attention in attentions:
            attention.observer = listen(attention)
        yield weights
    finally:
        for attention in attentions:
            attention.observer = None
