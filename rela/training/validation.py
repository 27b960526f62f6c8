"""How good a model is while it is trained: its loss and its greedy BLEU on the validation sets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rela.config import Config, CorpusConfig, DataConfig, NamedCorpusConfig
from rela.data.batching import one_pass
from rela.data.corpus import read_pairs
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords
from rela.decoding.translate import Translator
from rela.evaluation.scores import Score, bleu
from rela.model.transformer import Transformer
from rela.training.loss import objective_inputs
from rela.training.processes import Processes
from rela.training.watchdog import TrainingFailed

VALID = "valid"
"""The name of the first validation set."""


@torch.no_grad()
def validation_loss(
    objective: Callable[..., tuple[Tensor, Tensor]],
    corpus: PreparedCorpus,
    batch_tokens: int,
    processes: Processes,
    autocast: Callable[[], contextlib.AbstractContextManager],
) -> tuple[float, float]:
    """(loss, negative log-likelihood) a token over the corpus, which the processes share; the model is in eval mode."""
    sums = torch.zeros(2, dtype=torch.float64, device=processes.device)
    tokens = 0
    for batch in one_pass(corpus, batch_tokens, rank=processes.rank, world=processes.world):
        with autocast():
            sums += torch.stack(objective(*objective_inputs(batch.to(processes.device)))).double()
        tokens += batch.target_tokens
    total = processes.total(tokens)
    if not total:
        raise TrainingFailed(f"no validation pair fits a batch of {batch_tokens} tokens")
    loss, nll = (processes.total(value) / total for value in sums.tolist())
    return loss, nll


def validation_texts(config: DataConfig) -> dict[str, CorpusConfig | NamedCorpusConfig]:
    """The validation sets by name; the first is called valid."""
    first = {} if config.valid is None else {VALID: config.valid}
    return {**first, **{corpus.name: corpus for corpus in config.more_valid}}


def event_of(event: str, name: str) -> str:
    """An event as the log names it: valid and bleu of the first validation set, valid.NAME and bleu.NAME of others."""
    return event if name == VALID else f"{event}.{name}"


def greedy_bleu(model: Transformer, subwords: Subwords, config: Config, device: torch.device, name: str) -> Score:
    """BLEU of greedy translations of a validation set, as sacreBLEU scores the raw text."""
    root, valid = Path(config.data.root), validation_texts(config.data)[name]
    pairs = read_pairs(root / valid.source, root / valid.target, config.data.on_bad_line)
    sources, references = map(list, zip(*pairs, strict=True))
    translator = Translator(model, subwords, config, str(device))
    # Whatever engine the finished model is to be used with: here it is on the device it is trained on.
    return bleu(translator.translate(sources, beam=1, engine="auto", precision="auto"), references)
