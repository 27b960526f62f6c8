"""The Transformer: its size, that every kind trains in every place, that sentences do not see each other."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from rela.config import ModelConfig
from rela.data.batching import StaticShape, pack
from rela.data.subwords import BOS
from rela.model.transformer import Transformer
from tests.attention.attention_cases import KINDS
from tests.model.model_cases import V, hidden_states, inputs, make, random_pairs, small


def parameters(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


def base(kind: str) -> ModelConfig:
    return ModelConfig(encoder_attention=kind, decoder_attention=kind, cross_attention=kind)


def test_rela_g_adds_18_attentions_times_2_times_512_parameters_to_transformer_base():
    softmax = parameters(base("softmax"))
    assert parameters(base("rela-g")) - softmax == 18_432 == 18 * 2 * 512
    assert parameters(base("rela-i")) - softmax == 18 * 512
    assert parameters(base("relu")) == parameters(base("sparsemax")) == softmax


def test_transformer_base_has_the_parameters_that_its_parts_have():
    C, F_, layers, vocabulary = 512, 2048, 6, 32000
    attention, feed_forward, norm = 4 * C * C + 4 * C, 2 * C * F_ + F_ + C, 2 * C
    by_hand = (
        vocabulary * C
        + layers * (attention + feed_forward + 2 * norm)
        + layers * (2 * attention + feed_forward + 3 * norm)
    )
    assert parameters(base("softmax")) == by_hand


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize("kind", ["softmax", "rela-g"])
def test_parameter_counts_by_part_add_up(tied, kind):
    model = make(kind, tied_embeddings=tied, threshold=0.0)
    counts = model.parameter_counts()
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())
    tables = {"all": 1, "target": 2, "none": 2}[tied]
    assert counts["embeddings"] == tables * V * 24
    assert counts["output"] == (V * 24 if tied == "none" else 0)
    gains_and_gates = 2 * 24 if kind == "rela-g" else 0
    assert counts["cross attention"] == 2 * (4 * 24 * 24 + 4 * 24 + gains_and_gates)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_tied_embeddings_are_one_parameter(tied):
    model = make(tied_embeddings=tied)
    source, target, output = (
        model.source_embedding.table.weight,
        model.target_embedding.table.weight,
        model.output.weight,
    )
    assert (source is target) == (tied == "all")
    assert (target is output) == (tied != "none")


def test_learned_thresholds_add_one_parameter_a_head_to_rectified_attentions_alone():
    plain, learned = (small("rela-g", cross_attention="softmax", threshold=theta) for theta in (0.0, "learned"))
    assert parameters(learned) - parameters(plain) == 4 * 2  # 2 + 2 self-attentions of 2 heads


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["encoder", "decoder", "cross", "all"])
def test_every_kind_in_every_place_trains_a_step(kind, place):
    others = {} if place == "all" else {f"{place}_attention": kind}
    model = make(kind if place == "all" else "softmax", **others).train()
    batch = pack(random_pairs(5))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        torch.manual_seed(1)  # the same dropout twice, so that the losses compare
        loss = F.cross_entropy(model.logits(model(*inputs(batch))), batch.target_out)
        optimiser.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", ["softmax", "sparsemax", "rela-g", "relu", "relu2-g"])
def test_a_sentence_does_not_see_its_neighbours(kind, norm_first):
    model = make(kind, norm_first=norm_first)
    pairs = random_pairs(7)
    together = hidden_states(model, pairs)
    filled = hidden_states(model, pairs, StaticShape(131, 117, 12, 23, 29))
    for pair, in_batch, with_filler in zip(pairs, together, filled, strict=True):
        alone = hidden_states(model, [pair])[0]
        torch.testing.assert_close(in_batch, alone)
        torch.testing.assert_close(with_filler, alone)


def test_a_target_position_does_not_see_later_ones():
    model = make("rela-g")
    (source, target), (_, other) = random_pairs(2)
    prefix = target[:2]
    one, two = (hidden_states(model, [(source, prefix + rest)])[0] for rest in (target[2:], other))
    torch.testing.assert_close(one[: len(prefix) + 1], two[: len(prefix) + 1])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_step_by_step_is_teacher_forced_decoding(kind, norm_first):
    model = make(kind, norm_first=norm_first)
    pairs = [(source, (target * 8)[:8]) for source, target in random_pairs(4)]  # every target of 8
    forced = [F.log_softmax(model.logits(states), -1) for states in hidden_states(model, pairs)]
    batch = pack([(source, []) for source, _ in pairs])
    sources = batch.source_packing
    with torch.inference_mode():
        state = model.start(model.encode(batch.source, batch.source_positions, sources), sources)
        tokens = torch.full((len(pairs),), BOS)
        for position in range(9):
            log_probs, state = model.decode_step(tokens, state)
            torch.testing.assert_close(
                log_probs, torch.stack([row[position] for row in forced]).detach(), atol=2e-5, rtol=1e-5
            )
            if position < 8:
                tokens = torch.tensor([target[position] for _, target in pairs])
    assert state.position == 9


def test_dropout_acts_in_training_alone():
    model, pairs = make(dropout=0.3, attention_dropout=0.3), random_pairs(3)
    first, second = (torch.cat(hidden_states(model, pairs)) for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    first, second = (torch.cat(hidden_states(model, pairs)) for _ in range(2))
    assert not torch.equal(first, second)


def test_an_unknown_kind_and_a_pointless_threshold_are_refused():
    with pytest.raises(ValueError, match="rela-x"):
        Transformer(small("rela-x"))
    with pytest.raises(ValueError, match="target_sparsity"):
        Transformer(dataclasses.replace(small("rela-g"), target_sparsity=0.9))
