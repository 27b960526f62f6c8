"""Ends a run that has failed, before hours are spent on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rela.errors import RunFailed


class TrainingFailed(RunFailed):
    """Training cannot go on: the loss is not a number, or has never become lower than that of word frequencies."""


class Watchdog:
    """Stops a run whose loss is NaN, or that after `patience` steps predicts no better than word frequencies do.

    The second is what a ReLU without a norm does (row 4 of Table 1): the loss falls to the entropy of the word
    frequencies in the first few hundred steps and stays there.
    """

    def __init__(self, vocabulary_size: int, patience: int) -> None:
        self.counts = torch.zeros(vocabulary_size, dtype=torch.float64)
        self.patience = patience
        self.best = math.inf

    def count(self, target: Tensor) -> None:
        """Take note of the words of a batch (on the CPU, before it is sent anywhere)."""
        self.counts += torch.bincount(target, minlength=self.counts.numel())

    def unigram_entropy(self) -> float:
        """Nats a token that predicting by frequency alone costs; PAD is not a word."""
        counts = self.counts[1:]
        share = counts[counts > 0] / counts.sum()
        return float(-(share * share.log()).sum())

    def check(self, step: int, nll: float) -> None:
        """Raise if the mean negative log-likelihood of the last steps shows that training has failed."""
        if not math.isfinite(nll):
            raise TrainingFailed(
                f"the loss is {nll} at step {step}; lower train.learning_rate, lengthen train.warmup, or choose an "
                "attention with an output norm"
            )
        self.best = min(self.best, nll)
        entropy = self.unigram_entropy()
        if step >= self.patience and self.best > 0.97 * entropy:
            raise TrainingFailed(
                f"after {step} steps the loss is {self.best:.2f} nats a token at best, no better than guessing by word "
                f"frequency ({entropy:.2f}): optimisation has failed; use an attention with an output norm (rela-g), a "
                "longer train.warmup, or model.norm_first"
            )
