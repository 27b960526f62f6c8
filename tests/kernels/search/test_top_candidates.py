"""The best tokens of a row, read from few tiles, are those of a full sort of its log-probabilities."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.search.top_candidates import best_tokens, tile_logits, tiles_of
from tests.kernels.exactness import DEVICE, draw

EOS = 2


def candidates(x, weight, at_limit, banned, beam, count):
    rows, vocabulary = x.size(0), weight.size(0)
    logits, tiles = (
        torch.empty(rows, vocabulary, device=DEVICE),
        torch.empty(3, rows, tiles_of(vocabulary), device=DEVICE),
    )
    log_probs = torch.empty(rows, count, device=DEVICE)
    tokens = torch.empty(rows, count, dtype=torch.int32, device=DEVICE)
    sentences = [*range(len(at_limit) - 1, -1, -1)]
    lengths, limits = [6] * len(sentences), [6 if at_limit[sentence] else 7 for sentence in sentences]
    active, lengths, limits, forbidden = (
        torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in (sentences, lengths, limits, banned)
    )
    tile_logits(x, weight, forbidden, logits, tiles)
    best_tokens(logits, tiles, active, lengths, limits, forbidden, log_probs, tokens, beam=beam, eos=EOS)
    return log_probs, tokens


@pytest.mark.parametrize(
    ("V", "C", "beam", "count"),
    [(10, 8, 1, 1), (129, 24, 2, 4), (1500, 70, 3, 6), (257, 16, 17, 34), (10, 8, 6, 12), (200, 16, 40, 5)],
)
def test_they_are_the_best_of_a_sort(V, C, beam, count):
    """Of two sentences, the second of which has reached its limit."""
    x, weight = draw(2 * beam, C, seed=1), draw(V, C, seed=2)
    weight[[0, 1, 3]] *= 9  # the largest logits of their tile belong to tokens that may not come
    log_probs, tokens = candidates(x, weight, [0, 1], [0, 1, 3], beam, count)
    wanted = torch.log_softmax((x.double() @ weight.double().T), -1)
    allowed = wanted.clone()
    allowed[:, [0, 1, 3]] = -torch.inf
    best, index = allowed.topk(min(count, V - 3), dim=1)
    first, last = slice(0, beam), slice(beam, 2 * beam)
    torch.testing.assert_close(log_probs[first, : best.size(1)].double(), best[first], rtol=1e-5, atol=1e-4)
    assert torch.equal(tokens[first, : best.size(1)].long(), index[first])
    assert (log_probs[first, best.size(1) :] == -torch.inf).all(), "there are no more tokens than that"
    assert (tokens[last, 0] == EOS).all()
    torch.testing.assert_close(log_probs[last, 0].double(), wanted[last, EOS], rtol=1e-5, atol=1e-4)
    assert (log_probs[last, 1:] == -torch.inf).all()


def test_equal_logits_go_by_their_number():
    x, weight = torch.zeros(1, 8, device=DEVICE), torch.zeros(1200, 8, device=DEVICE)
    log_probs, tokens = candidates(x, weight, [0], [0], 1, 4)
    assert tokens.tolist() == [[1, 2, 3, 4]]
    torch.testing.assert_close(log_probs.exp() * 1200, torch.ones(1, 4, device=DEVICE))


def test_negative_and_huge_logits_keep_their_order():
    x = torch.ones(1, 16, device=DEVICE)
    weight = torch.tensor([-3e4, 1e4, -1e-30, 0.0, -5.0, -2.0, 9e3])[:, None].expand(7, 16).to(DEVICE) / 16
    _, tokens = candidates(x, weight.contiguous(), [0], [0], 1, 6)
    assert tokens.tolist() == [[1, 6, 3, 2, 5, 4]]
