"""Plans of calls: one for each layout, never taken for another one, and not kept without end."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import rela
from rela.attention import plans
from rela.attention.kinds import kind_of


def test_a_plan_knows_shapes_and_not_values():
    """Checks are made once for a layout; lengths that are wrong are named however often the layout came before."""
    q = torch.zeros(2, 1, 3, 8)
    assert torch.equal(rela.attend(q, q, q, key_lengths=torch.tensor([3, 1])), q)
    before = len(plans.PLANS)
    rela.attend(q, q, q, key_lengths=torch.tensor([2, 0]))
    assert len(plans.PLANS) == before
    with pytest.raises(ValueError, match="key_lengths run from 3 to 4; wanted 0 to 3"):
        rela.attend(q, q, q, key_lengths=torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="key_starts run from -1 to 0; wanted 0 to 3"):
        rela.attend(q, q, q, key_starts=torch.tensor([-1, 0]))
    for changed in ({"dropout": False}, {"scale": True}, {"threshold": True}):
        rela.attend(q, q, q, dropout=0.0, scale=1.0, threshold=1.0)
        with pytest.raises((TypeError, ValueError), match=next(iter(changed))):
            rela.attend(q, q, q, **changed)
    plans.PLANS.clear()


def test_a_plan_knows_where_each_tensor_begins():
    """A kernel compiled for keys that begin at a multiple of 16 bytes is never given others."""
    whole, options = torch.zeros(2 * 3 * 8 + 4), plans.Options(kind_of("relu"))
    aligned, shifted = whole[:48].view(1, 2, 3, 8), whole[1:49].view(1, 2, 3, 8)
    keys = {plans.key_of(*inputs, options) for inputs in product((aligned, shifted), repeat=3)}
    assert len(keys) == 8


def test_plans_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans, "PLANS", {})
    monkeypatch.setattr(plans, "MOST_PLANS", 3)
    for keys in range(1, 9):
        rela.attend(torch.zeros(1, 1, 2, 4), *[torch.zeros(1, 1, keys, 4)] * 2)
    assert 0 < len(plans.PLANS) <= 3
