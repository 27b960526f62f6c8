"""The reference behind the interface of search, and another engine made of two: an ensemble."""

from __future__ import annotations

import pytest
import torch

from rela.data.batching import pack
from rela.decoding.beam import beam_search
from rela.decoding.engines.engine import Engine
from rela.decoding.engines.int8 import Int8Engine
from rela.decoding.engines.reference import ReferenceEngine
from rela.decoding.pipeline import SPECIAL
from tests.model.model_cases import inputs, make, random_pairs


@pytest.mark.parametrize(("make_engine", "tolerance"), [(ReferenceEngine, 1e-4), (Int8Engine, 0.05)])
@torch.inference_mode()
def test_steps_are_teacher_forcing(make_engine, tolerance):
    """`step` after `encode` and `start` gives what `score` gives each token; so it does after sentences have left."""
    engine, pairs = make_engine(make()), random_pairs(3, seed=2)
    targets = [[*target, 2] for _, target in pairs]
    scores = engine.score(pairs)
    state = engine.start(engine.encode([source for source, _ in pairs]))
    alive, tokens = [0, 1, 2], torch.tensor([1, 1, 1])
    for position in range(max(map(len, targets))):
        log_probs, state = engine.step(tokens, state)
        for row, sentence in enumerate(alive):
            wanted = scores[sentence][position]
            assert float(log_probs[row, targets[sentence][position]]) == pytest.approx(wanted, abs=tolerance)
        stay = torch.tensor([row for row, i in enumerate(alive) if position + 1 < len(targets[i])], dtype=torch.long)
        state = engine.reorder(state, stay, stay)
        alive = [alive[row] for row in stay.tolist()]
        tokens = torch.tensor([targets[sentence][position] for sentence in alive])
    assert not alive


@torch.inference_mode()
def test_scores_are_the_models_log_probabilities():
    model, pairs = make(), random_pairs(4)
    for pair, scores in zip(pairs, ReferenceEngine(model).score(pairs), strict=True):
        batch = pack([pair])
        log_probs = model.logits(model(*inputs(batch))).log_softmax(-1)
        assert scores == pytest.approx(log_probs.gather(1, batch.target_out[:, None])[:, 0].tolist(), abs=1e-4)


class Mean:
    """The mean of the probabilities of some engines: an engine too."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines
        self.row_multiple = max(engine.row_multiple for engine in engines)

    def encode(self, sources):
        return [engine.encode(sources) for engine in self.engines]

    def start(self, encoded):
        return [engine.start(one) for engine, one in zip(self.engines, encoded, strict=True)]

    def step(self, tokens, states):
        found = [engine.step(tokens, state) for engine, state in zip(self.engines, states, strict=True)]
        probabilities = torch.stack([log_probs.exp() for log_probs, _ in found]).mean(0)
        return probabilities.log(), [state for _, state in found]

    def reorder(self, states, rows, sentences):
        return [engine.reorder(state, rows, sentences) for engine, state in zip(self.engines, states, strict=True)]


@torch.inference_mode()
def test_search_takes_any_engine():
    """A model with itself finds what it finds alone; with another, something that neither does."""
    sources, limits = [source for source, _ in random_pairs(5)], torch.tensor([6, 9, 3, 8, 5])
    one, other = ReferenceEngine(make()), ReferenceEngine(make(seed=1))

    def tokens_of(engine: Engine) -> list[list[tuple[int, ...]]]:
        found = beam_search(engine, sources, limits, beam=3, special=SPECIAL)
        return [[item.tokens for item in group] for group in found]

    assert tokens_of(Mean([one, one])) == tokens_of(one)
    assert tokens_of(Mean([one, other])) not in (tokens_of(one), tokens_of(other))
