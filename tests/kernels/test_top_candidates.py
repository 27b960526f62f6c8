"""The best tokens of a row, found tile by tile, are those of a full sort of its log-probabilities."""

import pytest
import torch

pytest.importorskip("triton")

from exactness import DEVICE, draw

from rela.kernels.top_candidates import merge_tiles, tile_candidates, tiles_of

EOS = 2


def candidates(x, weight, places, lengths, limits, banned, beam, count):
    rows, tiles = x.size(0), tiles_of(weight.size(0))
    keys = torch.empty(rows, tiles, count, dtype=torch.int64, device=DEVICE)
    highest, totals = torch.empty(2, rows, tiles, device=DEVICE)
    log_probs = torch.empty(rows, count, device=DEVICE)
    tokens = torch.empty(rows, count, dtype=torch.int32, device=DEVICE)
    tile_candidates(
        x, weight, *(torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in (places, lengths, limits, banned)),
        keys, highest, totals, beam=beam, count=count, eos=EOS,
    )  # fmt: skip
    merge_tiles(keys, highest, totals, log_probs, tokens)
    return log_probs, tokens


@pytest.mark.parametrize(
    ("V", "C", "beam", "count"), [(10, 8, 1, 1), (129, 24, 2, 4), (300, 70, 3, 6), (257, 16, 17, 34)]
)
def test_they_are_the_best_of_a_sort(V, C, beam, count):
    """Of two sentences and an empty seat; the second sentence has reached its limit."""
    x, weight = draw(3 * beam, C, seed=1), draw(V, C, seed=2)
    log_probs, tokens = candidates(x, weight, [1, -1, 0], [9, 3], [9, 5], [0, 1, 3], beam, count)
    wanted = torch.log_softmax((x.double() @ weight.double().T), -1)
    allowed = wanted.clone()
    allowed[:, [0, 1, 3]] = -torch.inf
    best, index = allowed.topk(min(count, V - 3), dim=1)
    first = slice(0, beam)
    torch.testing.assert_close(log_probs[first, : best.size(1)].double(), best[first], rtol=1e-5, atol=1e-4)
    assert torch.equal(tokens[first, : best.size(1)].long(), index[first])
    assert (log_probs[first, best.size(1) :] == -torch.inf).all(), "there are no more tokens than that"
    last = slice(2 * beam, 3 * beam)
    assert (tokens[last, 0] == EOS).all()
    torch.testing.assert_close(log_probs[last, 0].double(), wanted[last, EOS], rtol=1e-5, atol=1e-4)
    assert (log_probs[last, 1:] == -torch.inf).all()


def test_equal_logits_go_by_their_number():
    log_probs, tokens = candidates(torch.zeros(1, 8), torch.zeros(200, 8), [0], [0], [5], [0], 1, 4)
    assert tokens.tolist() == [[1, 2, 3, 4]]
    torch.testing.assert_close(log_probs.exp() * 200, torch.ones(1, 4, device=DEVICE))


def test_negative_and_huge_logits_keep_their_order():
    x = torch.ones(1, 16, device=DEVICE)
    weight = torch.tensor([-3e4, 1e4, -1e-30, 0.0, -5.0, -2.0, 9e3])[:, None].expand(7, 16).to(DEVICE) / 16
    _, tokens = candidates(x, weight.contiguous(), [0], [0], [5], [0], 1, 6)
    assert tokens.tolist() == [[1, 6, 3, 2, 5, 4]]
