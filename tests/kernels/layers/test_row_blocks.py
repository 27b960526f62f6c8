"""Blocks of rows: a plan covers every column, and rows are views where they can be."""

import pytest
import torch

pytest.importorskip("triton")

from rela.kernels.layers.row_blocks import PIECE, ROWS, WIDEST, as_rows, block_plan, enough_programs


@pytest.mark.parametrize("width", [1, 7, 255, 256, 257, 1000, 1024, 1025, 5000])
def test_a_plan_covers_every_column_and_little_more(width: int):
    plan = block_plan(torch.zeros(3, width))
    assert plan["C"] == width
    assert width <= plan["P"] * plan["W"] < 2 * width + 1
    assert (plan["W"] <= PIECE and plan["BN"] == plan["num_warps"] == ROWS) or width > WIDEST
    assert 1 <= plan["num_warps"] <= 32


def test_rows_are_views_where_they_can_be():
    x = torch.arange(24.0).view(2, 3, 4)
    assert as_rows(x).data_ptr() == x.data_ptr()
    assert as_rows(x).shape == (6, 4)
    assert as_rows(x.mT).is_contiguous()
    assert torch.equal(as_rows(x.mT), x.mT.reshape(-1, 3))
    part = x[..., :2]
    assert torch.equal(as_rows(part), part.reshape(-1, 2))


@pytest.mark.parametrize("rows", [1, 4, 5, 100_000])
def test_no_more_programs_than_blocks(rows: int):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    programs = enough_programs(rows, {"BN": 4}, 2, device)
    assert 1 <= programs <= -(-rows // 4)
