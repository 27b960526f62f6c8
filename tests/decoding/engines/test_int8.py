"""int8 against float32: each linear map within its rounding, the whole model near it, and no row sees another."""

from __future__ import annotations

import pytest
import torch

from rela.data.batching import pack
from rela.decoding.engines.int8 import QuantisedTransformer
from rela.decoding.engines.int8_linear import why_not_int8
from tests.attention.attention_cases import KINDS
from tests.model.model_cases import V, inputs, make, random_pairs


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "topk:3"])  # which jumps from key to key
@pytest.mark.parametrize("norm_first", [False, True])
@torch.inference_mode()
def test_the_model_is_near_its_float32_self(kind, norm_first):
    """Within the rounding that the maps add up to; other weights are nowhere near.

    A step is 1/127 of the largest number of a row, about three times its spread, and rounding errs by a step / √12,
    once for the inputs and once for the weights. Errors of the two layers' 2 · 6 + 2 · 10 maps add up like random ones;
    twice that is allowed.
    """
    rounding = 2 * (2 * 6 + 2 * 10) ** 0.5 * 2**0.5 * 3 / 127 / 12**0.5
    model = make(kind, norm_first=norm_first, width=48, heads=4, feed_forward=96)
    batch = inputs(pack(random_pairs(5)))
    exact, got = model(*batch), QuantisedTransformer(model)(*batch)
    other = make(kind, seed=1, norm_first=norm_first, width=48, heads=4, feed_forward=96)(*batch)
    error = (got - exact).square().mean().sqrt() / exact.std()
    assert error < rounding
    assert 10 * error < (other - exact).square().mean().sqrt() / exact.std()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
@torch.inference_mode()
def test_steps_with_changing_ancestors_are_teacher_forcing(kind, beams):
    """Whatever the rows grow from, and whoever leaves, a row's log-probabilities are those of its own prefix."""
    model = QuantisedTransformer(make(kind))
    generator = torch.Generator().manual_seed(beams)
    pairs = [(source, []) for source, _ in random_pairs(3)]
    batch = pack(pairs)
    sources = batch.source_packing
    state = model.start(model.encode(batch.source, batch.source_positions, sources), sources)
    owners = [0, 1, 2]
    prefixes: list[list[int]] = [[] for _ in range(3 * beams)]
    tokens = torch.full((3 * beams,), 1)
    for step in range(5):
        log_probs, state = model.decode_step(tokens, state)
        forced = pack([(pairs[owners[row // beams]][0], prefix) for row, prefix in enumerate(prefixes)])
        wanted = torch.log_softmax(model.logits(model(*inputs(forced))), -1)[
            forced.target_packing.cu_seqlens[1:].long() - 1
        ]
        torch.testing.assert_close(log_probs, wanted, rtol=0.0, atol=0.05)  # an activation may fall to the next step
        keep = torch.tensor([2, 0]) if step == 2 else torch.arange(len(owners))
        parents = torch.randint(beams, (len(keep), beams), generator=generator)
        rows = (keep[:, None] * beams + parents).flatten()
        tokens = torch.randint(4, V, (rows.numel(),), generator=generator)
        prefixes = [[*prefixes[row], token] for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]
        state.reorder(rows, keep if step == 2 else None)
        owners = [owners[i] for i in keep.tolist()]


@torch.inference_mode()
def test_caches_grow_beyond_their_first_capacity():
    model = QuantisedTransformer(make(max_length=80))
    batch = pack([([5, 6, 7], list(range(4, 4 + 30)) + list(range(4, 4 + 30)))])
    sources = batch.source_packing
    state = model.start(model.encode(batch.source, batch.source_positions, sources), sources)
    wanted = torch.log_softmax(model.logits(model(*inputs(batch))), -1)
    for token, row in zip(batch.target_in, wanted, strict=True):
        log_probs, state = model.decode_step(token.repeat(2), state)
        torch.testing.assert_close(log_probs, row.repeat(2, 1), rtol=0.0, atol=0.05)


def test_a_learned_threshold_is_kept():
    model = make("rela-g", threshold="learned")
    with torch.inference_mode():
        batch = inputs(pack(random_pairs(2)))
        before = QuantisedTransformer(model)(*batch)
        for layer in model.decoder:
            layer.cross.threshold.fill_(1.0)
        after, exact = QuantisedTransformer(model)(*batch), model(*batch)
    assert (after - exact).abs().mean() < 0.2 * (after - before).abs().mean()


def test_where_int8_cannot_serve():
    assert why_not_int8(torch.device("cpu")) is None
    assert "cuda" in str(why_not_int8(torch.device("cuda")))
