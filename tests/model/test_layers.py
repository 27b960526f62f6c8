"""Layers of encoder and decoder: packed sentences do not see each other, and a step is a row of the whole."""

import pytest
import torch
from torch.testing import assert_close

from rela.config import ModelConfig, QueryKeyGains
from rela.model.layers import DecoderLayer, EncoderLayer, FeedForward, make_attention, threshold_options
from rela.packing import Packing
from tests.attention.attention_cases import normal, with_random_parameters

CONFIG = ModelConfig(vocabulary_size=9, width=12, heads=3, feed_forward=20, dropout=0.0, attention_dropout=0.0)
LENGTHS = (3, 1, 4)


def packing(*lengths: int) -> Packing:
    return Packing(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), max(lengths))


def test_feed_forward_is_two_maps_with_a_rectifier_between():
    layer = with_random_parameters(FeedForward(6, 10).double())
    x = normal(5, 6)
    hidden = (x @ layer.expand.weight.T + layer.expand.bias).clamp(min=0)
    assert_close(layer(x), hidden @ layer.contract.weight.T + layer.contract.bias)


@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
def test_thresholds_belong_to_rectified_attention_alone(kind: str):
    config = ModelConfig(width=12, heads=3, threshold=0.2, encoder_attention=kind)
    options = threshold_options(config, kind)
    assert options == ({} if kind == "softmax" else {"threshold": 0.2, "target_sparsity": config.target_sparsity})
    assert make_attention(config, kind, 1.0).threshold == (0.0 if kind == "softmax" else 0.2)


@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
def test_the_gain_scales_initial_queries_and_keys_alone(kind: str):
    def weights(gain: float) -> dict[str, torch.Tensor]:
        torch.manual_seed(5)
        config = ModelConfig(width=12, heads=3, encoder_attention=kind)
        return dict(make_attention(config, kind, gain).named_parameters())

    plain, small = weights(1.0), weights(0.3)
    assert_close(small["in_proj_weight"][:24], 0.3 * plain["in_proj_weight"][:24])
    assert torch.equal(small["in_proj_weight"][24:], plain["in_proj_weight"][24:])
    assert all(torch.equal(small[name], plain[name]) for name in plain if name != "in_proj_weight")


def test_each_attention_type_has_its_own_gain():
    def norms(gain: float | QueryKeyGains) -> torch.Tensor:
        torch.manual_seed(5)
        config = ModelConfig(width=12, heads=3, query_key_gain=gain)
        decoder = DecoderLayer(config)
        return torch.stack([one.in_proj_weight[:24].norm() for one in (decoder.attention, decoder.cross)])

    for gain, factors in ((0.5, (0.5, 0.5)), (QueryKeyGains(encoder=9, cross=0.2), (1.0, 0.2))):
        assert_close(norms(gain), norms(1.0) * torch.tensor(factors))
    torch.manual_seed(5)
    small = EncoderLayer(ModelConfig(width=12, heads=3, query_key_gain=QueryKeyGains(encoder=0.25)))
    torch.manual_seed(5)
    plain = EncoderLayer(ModelConfig(width=12, heads=3))
    assert_close(small.attention.in_proj_weight[:24], plain.attention.in_proj_weight[:24] * 0.25)


def test_packed_sentences_are_encoded_as_each_alone():
    layer = with_random_parameters(EncoderLayer(CONFIG).double())
    x = normal(sum(LENGTHS), 12)
    together = layer(x, packing(*LENGTHS))
    begin = 0
    for length in LENGTHS:
        alone = layer(x[begin : begin + length], packing(length))
        assert_close(together[begin : begin + length], alone)
        begin += length


def test_a_decoder_position_does_not_see_later_ones():
    layer = with_random_parameters(DecoderLayer(CONFIG).double())
    x, memory = normal(4, 12), normal(5, 12, seed=1)
    before = layer(x, packing(4), memory, packing(5))
    x[2:] += 1
    after = layer(x, packing(4), memory, packing(5))
    assert_close(after[:2], before[:2])
    assert not torch.allclose(after[2:], before[2:])
