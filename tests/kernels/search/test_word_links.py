"""The kernel that reads word links gives what plain PyTorch gives."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import torch

from rela.alignment.choose import AlignmentChoice
from rela.alignment.online import LONE_MARK, SPECIAL, OnlineLinks
from rela.analysis.links import NO_LINK
from rela.data.subwords import PAD
from tests.kernels.exactness import DEVICE
from tests.tiny_models import tiny_translator

# Subwords that begin a word, one that goes on, ▁ alone, no text; a mark that is a word, a mark behind one.
STARTS = torch.tensor([SPECIAL, 1, 1, 1, 0, 0, LONE_MARK, SPECIAL, 1, 0], dtype=torch.int8)
LETTERS = torch.tensor([1, 1, 1, 1, 1, 1, 0, 1, 0, 0], dtype=torch.int8)


def random_ids(pairs: int, longest: int, ids: list[int], generator: torch.Generator) -> torch.Tensor:
    """[B, longest] with PAD behind; the first is full, and one is empty."""
    drawn = torch.tensor(ids)[torch.randint(len(ids), (pairs, longest), generator=generator)]
    lengths = torch.randint(longest + 1, (pairs, 1), generator=generator)
    lengths[0], lengths[-1] = longest, 0
    return drawn.masked_fill(torch.arange(longest) >= lengths, PAD).int()


WORDS, ANY = [1, 2, 3, 4, 5, 8, 9], list(range(1, 10))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("heads", [(2, 0), None])
@pytest.mark.parametrize(("S", "T"), [(7, 5), (1, 3), (33, 40)])
@pytest.mark.parametrize("ids", [WORDS, ANY], ids=["words", "any"])
def test_best_words_are_those_of_plain_pytorch(ids, S, T, heads, shifted, monkeypatch):
    compare(ids, 6, S, T, AlignmentChoice(0, heads, shifted), monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("heads", [(2, 0), None])
@pytest.mark.parametrize(("S", "T"), [(7, 5), (1, 3), (33, 40), (129, 64), (300, 257)])
@pytest.mark.parametrize("ids", [WORDS, ANY], ids=["words", "any"])
def test_best_words_on_the_device(ids, S, T, heads, shifted, monkeypatch):
    compare(ids, 70, S, T, AlignmentChoice(0, heads, shifted), monkeypatch)


def compare(ids: list[int], pairs: int, S: int, T: int, choice: AlignmentChoice, monkeypatch) -> None:
    generator = torch.Generator().manual_seed(S)
    links = OnlineLinks(tiny_translator(), AlignmentChoice(0, None, choice.shifted))
    links.choice = choice  # with a head that the tiny model does not have
    tables = torch.stack([STARTS, STARTS]).to(DEVICE), torch.stack([LETTERS, LETTERS]).to(DEVICE)
    monkeypatch.setattr(links, "tables_on", lambda device: tables)
    source, target = (random_ids(pairs, longest, ids, generator).to(DEVICE) for longest in (S, T))
    # of few bits, so that sums are exact and equal ones are met; whole rows are null
    weights = torch.randint(-2, 4, (pairs, 3, T + 1, S + 1), generator=generator).clamp_min(0).float()
    weights[:, :, ::3] = 0
    weights = weights.to(DEVICE)
    monkeypatch.setattr("rela.alignment.online.triton_serves", lambda x: False)
    wanted, wanted_read = links.read_batch(source, target, weights)
    best, is_read = links.by_kernel(source, target, weights, *tables)
    assert torch.equal(best, wanted.int())
    assert torch.equal(is_read, wanted_read)
    assert S == 1 or (wanted != NO_LINK).any()
    assert not is_read[-1]
