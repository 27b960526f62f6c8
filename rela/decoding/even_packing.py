"""Sentences packed for a forward pass, so that no sentence's numbers depend on the others."""

from __future__ import annotations

import torch

from rela.data.batch import Batch, StaticShape, pack
from rela.model.padding import KEY_MULTIPLE, round_up

# Matrix products give a row the same bits whatever the other rows are, if there are enough of them and their
# number is a multiple of the kernel's block. So a translation does not depend on the sentences beside it.
# MKL with AVX-512 multiplies up to 15 rows by another kernel, which adds up in another order.
ROW_MULTIPLE = 16

IdPair = tuple[list[int], list[int]]
"""Subword ids of a source and a target, without <s> and </s>."""


def pack_evenly(pairs: list[IdPair], device: torch.device) -> Batch:
    """Pairs as one batch whose sizes are multiples of ROW_MULTIPLE and KEY_MULTIPLE."""
    lengths = [[len(ids) + 1 for ids in side] for side in zip(*pairs, strict=True)]
    source, target = (round_up(sum(side), ROW_MULTIPLE) for side in lengths)
    longest_source, longest_target = (round_up(max(side), KEY_MULTIPLE) for side in lengths)
    shape = StaticShape(source, target, len(pairs), longest_source, longest_target)
    return pack(pairs, shape).to(device)
