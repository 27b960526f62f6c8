"""Packed pairs have even sizes, and their filler changes no pair's numbers."""

from __future__ import annotations

import torch

from rela.decoding.even_packing import ROW_MULTIPLE, pack_evenly
from rela.model.padding import KEY_MULTIPLE
from tests.model.model_cases import make, random_pairs


@torch.inference_mode()
def test_a_pair_has_the_same_states_alone_and_with_others():
    model, pairs = make(), random_pairs(6)
    together = pack_evenly(pairs, torch.device("cpu"))
    assert together.source.numel() % ROW_MULTIPLE == together.target_in.numel() % ROW_MULTIPLE == 0
    states = model(*together.inputs)
    first = 0
    for pair in pairs:
        alone = model(*pack_evenly([pair], torch.device("cpu")).inputs)
        length = len(pair[1]) + 1
        assert torch.equal(alone[:length], states[first : first + length])
        first += length


def test_the_longest_sentence_is_rounded_up():
    batch = pack_evenly([([5] * 3, [6] * (KEY_MULTIPLE - 1)), ([5] * 20, [6] * KEY_MULTIPLE)], torch.device("cpu"))
    assert (batch.source_packing.max_seqlen, batch.target_packing.max_seqlen) == (2 * KEY_MULTIPLE, 2 * KEY_MULTIPLE)
