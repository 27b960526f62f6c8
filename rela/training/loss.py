"""What training minimises: label-smoothed cross entropy, and the sparsity penalty where one is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rela.attention.sparsity import collect_sparsity_penalty
from rela.data.batch import Batch
from rela.data.subwords import PAD
from rela.model.transformer import Transformer
from rela.packing import Packing
from rela.training.linear_cross_entropy import linear_cross_entropy, smoothed_loss_of


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """(the label-smoothed loss, the negative log-likelihood) summed over the tokens that are not PAD.

    This is the specification; training takes `linear_cross_entropy`, which never stores the logits.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss, nll, _ = smoothed_loss_of(logits, target, smoothing)
    return loss, nll


class Objective(nn.Module):
    """A Transformer with its loss: one packed batch in, two sums out. This is what is compiled and distributed."""

    def __init__(self, model: Transformer, smoothing: float, sparsity_weight: float) -> None:
        super().__init__()
        self.model, self.smoothing, self.sparsity_weight = model, smoothing, sparsity_weight

    def forward(
        self,
        source: Tensor,
        source_positions: Tensor,
        sources: Packing,
        target_in: Tensor,
        target_positions: Tensor,
        targets: Packing,
        target_out: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(what to minimise, negative log-likelihood), each summed over the target tokens."""
        hidden = self.model(source, source_positions, sources, target_in, target_positions, targets)
        loss, nll = linear_cross_entropy(hidden, self.model.output.weight, target_out, self.smoothing)
        if self.model.training and self.model.config.target_sparsity is not None:
            # Per token like the rest of the sum, so that its weight does not depend on the batch size.
            loss = loss + self.sparsity_weight * collect_sparsity_penalty(self.model) * (target_out != PAD).sum()
        return loss, nll


def objective_inputs(batch: Batch) -> tuple[Tensor, Tensor, Packing, Tensor, Tensor, Packing, Tensor]:
    """A batch in the order of Objective.forward."""
    return *batch.inputs, batch.target_out
