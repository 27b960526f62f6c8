"""The sparsity that is logged is that which the loss is penalised for."""

from __future__ import annotations

import pytest
import torch

from rela.attention.sparsity import collect_sparsity_penalty
from rela.config import ModelConfig
from rela.data.batch import pack
from rela.model.transformer import Transformer
from rela.training.sparsity import measure_sparsity

PAIRS = [([4, 5, 6], [7, 8]), ([9], [10, 11, 12, 13]), ([5] * 7, [6])]


@pytest.mark.parametrize("target", [0.0, 0.9])
def test_rate_and_penalty_are_those_of_the_training_forward(target):
    torch.manual_seed(3)
    shape = {"width": 12, "heads": 3, "encoder_layers": 1, "decoder_layers": 2, "feed_forward": 8}
    config = ModelConfig(
        20, **shape, threshold="learned", target_sparsity=target, dropout=0.0, attention_dropout=0.0, max_length=16
    )
    model = Transformer(config).train()
    batch = pack(PAIRS)
    model(*batch.inputs)
    rate, penalty = measure_sparsity(model, batch)
    assert penalty == pytest.approx(collect_sparsity_penalty(model).detach().item(), rel=1e-4)
    assert 0 < rate < 1
    assert model.training
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("threshold"):
                parameter.fill_(1e4)
    assert measure_sparsity(model, batch)[0] == 1
