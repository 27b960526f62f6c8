"""The decoder's state follows the hypotheses of a search."""

from __future__ import annotations

import torch

from rela.data.batching import pack
from rela.data.subwords import BOS
from tests.model.model_cases import make, random_pairs


def test_reordered_states_follow_their_rows():
    """Two beams a sentence, sentence 1 leaves, the beams of the others swap: as if decoded so from the start."""
    model, pairs = make("rela-g"), random_pairs(3, seed=5)

    def decode(sources: list[list[int]], prefixes: list[list[int]]):
        batch = pack([(source, []) for source in sources])
        packing = batch.source_packing
        state = model.start(model.encode(batch.source, batch.source_positions, packing), packing)
        for column in zip(*prefixes, strict=True):
            log_probs, state = model.decode_step(torch.tensor(column), state)
        return log_probs, state

    sources = [source for source, _ in pairs]
    with torch.inference_mode():
        prefixes = [[BOS, 4 + row] for row in range(6)]
        _, state = decode(sources, prefixes)
        rows = [1, 0, 5, 4]
        state.reorder(torch.tensor(rows), torch.tensor([0, 2]))
        got, _ = model.decode_step(torch.tensor([10, 11, 12, 13]), state)
        new = [prefixes[row] + [token] for row, token in zip(rows, [10, 11, 12, 13], strict=True)]
        wanted, _ = decode([sources[0], sources[2]], new)
    torch.testing.assert_close(got, wanted, atol=2e-5, rtol=1e-5)
    assert state.memories[0].keys.size(0) == 2, "cross keys are stored once a sentence"
