"""The loss against PyTorch's, padding, penalties, and how it is compiled."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.debugging import aot_eager
from torch.nn.parallel import DistributedDataParallel

from rela.config import ModelConfig
from rela.data.batching import StaticShape, pack
from rela.data.subwords import PAD
from rela.model.transformer import Transformer
from rela.training.loss import Objective, smoothed_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_loss_is_pytorchs_label_smoothed_cross_entropy(smoothing):
    torch.manual_seed(0)
    logits = (5 * torch.randn(23, 41, dtype=torch.float32)).requires_grad_()
    target = torch.randint(1, 41, (23,))
    target[[3, 7, 22]] = PAD
    loss, nll = smoothed_cross_entropy(logits, target, smoothing)
    wanted = F.cross_entropy(logits, target, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, ignore_index=PAD, reduction="sum"))
    torch.testing.assert_close(*(torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (loss, wanted)))


def test_half_precision_logits_are_summed_in_float32():
    logits = torch.randn(9, 1000).bfloat16()
    target = torch.randint(1, 1000, (9,))
    loss, _ = smoothed_cross_entropy(logits, target, 0.1)
    torch.testing.assert_close(loss, F.cross_entropy(logits.float(), target, reduction="sum", label_smoothing=0.1))


def inputs(pairs, static=None) -> tuple:
    batch = pack(pairs, static)
    return *batch.inputs, batch.target_out


def shape(**options) -> ModelConfig:
    return ModelConfig(
        vocabulary_size=30,
        width=16,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        feed_forward=24,
        max_length=32,
        **options,
    )


def test_filler_of_a_static_shape_costs_nothing():
    objective = Objective(Transformer(shape()), 0.1, 1.0).eval()
    pairs = [([4, 5, 6], [7, 8]), ([9], [10, 11, 12, 13])]
    for plain, filled in zip(
        objective(*inputs(pairs)), objective(*inputs(pairs, StaticShape(20, 20, 5, 9, 9))), strict=True
    ):
        torch.testing.assert_close(plain, filled)


def test_the_sparsity_penalty_weighs_as_much_as_a_token_and_moves_the_thresholds_alone():
    model = Transformer(shape(threshold="learned", target_sparsity=0.9, dropout=0.0, attention_dropout=0.0))
    pairs = [([4, 5, 6], [7, 8]), ([9], [10, 11, 12, 13])]
    (without, _), (once, _), (twice, _) = (Objective(model, 0.1, weight)(*inputs(pairs)) for weight in (0.0, 1.0, 2.0))
    assert once > without
    torch.testing.assert_close(twice - once, once - without)
    penalty = once - without
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(penalty, list(named.values()), allow_unused=True)
    moved = {
        name
        for name, gradient in zip(named, gradients, strict=True)
        if gradient is not None and gradient.abs().max() > 1e-6
    }
    assert moved
    assert all(name.endswith("threshold") for name in moved)


@pytest.fixture
def alone_in_a_group():
    """A process group of this process."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone_in_a_group")
def test_distributed_it_is_compiled_in_parts_so_that_gradients_are_sent_while_others_are_computed():
    """As one graph, all gradients would come at its end; PyTorch cuts it where a bucket of them is full."""
    config = dataclasses.replace(
        shape(dropout=0.0, attention_dropout=0.0), width=256, feed_forward=512, encoder_layers=2
    )
    objective, graphs = Objective(Transformer(config), 0.1, 0.0), []

    def backend(graph, example):
        graphs.append(graph)
        return aot_eager(graph, example)

    arguments = inputs([([4, 5, 6], [7, 8]), ([9], [10, 11, 12, 13])], StaticShape(20, 20, 5, 9, 9))
    wanted = objective(*arguments)[0]
    objective.compile(backend=backend, dynamic=False)
    distributed = DistributedDataParallel(objective, bucket_cap_mb=2)
    loss, _ = distributed(*arguments)
    loss.backward()
    torch.testing.assert_close(loss, wanted)
    assert len(graphs) > 2, "7 MB of gradients in buckets of about 2"
    assert all(weight.grad is not None for weight in objective.parameters())
