"""Weights of many translations at once are those of each alone."""

import torch

from rela.analysis.capture import capture
from rela.decoding.forced import forced_attention
from tests.tiny_models import HEADS, LAYERS, tiny_translator, toy_pairs


def test_weights_of_a_layer_are_those_of_a_whole_forward_pass():
    translator, pairs = tiny_translator(), toy_pairs(5)
    ids = [translator.encode_pair(*pair) for pair in pairs] + [([5, 6], [])]
    whole = [found["cross"].weights for found in capture(translator, pairs, ("cross",))]
    for layer in range(LAYERS):
        found = {}
        for batch, weights in forced_attention(translator.model, translator.device, ids, layer):
            found |= {i: weights[row, :, : len(ids[i][1]) + 1, : len(ids[i][0]) + 1] for row, i in enumerate(batch)}
        assert sorted(found) == list(range(len(ids)))
        assert found[len(pairs)].shape == (HEADS, 1, 3)
        for number, weights in enumerate(whole):
            torch.testing.assert_close(found[number], weights[layer], rtol=1e-5, atol=1e-6)
    assert all(layer.cross.observer is None for layer in translator.model.decoder)
