"""What stands between attentions: sums, norms and thin products as PyTorch computes them."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from rela.kernels.search.step_layers import Norm, SublayerOutput, embed, norm_linear, residual_norm, thin_linear
from tests.kernels.exactness import DEVICE, draw


def parts(rows, width, heads, count, first):
    """A residual, a output in `count` parts with squares, a norm, and what comes of them in float64."""
    residual, y, bias = draw(rows, width, seed=1), draw(count, rows, width, seed=2), draw(width, seed=3)
    squares = draw(rows, heads, seed=4).square() if heads else None
    norm = Norm(draw(width, seed=5), draw(width, seed=6), 1e-5, first)
    scale = 1.0 if squares is None else (squares.double().sum(1, keepdim=True) / width + 1e-6).rsqrt()
    total = residual.double() + y.double().sum(0) * scale + bias.double()
    normed = F.layer_norm(total, (width,), norm.weight.double(), norm.bias.double(), 1e-5)
    output = SublayerOutput(y if count > 1 else y[0], bias, squares, 1e-6)
    return residual, output, norm, normed, (total if first else normed)


@pytest.mark.parametrize(
    ("rows", "width", "heads", "count", "first"), [(1, 8, 0, 1, False), (5, 24, 3, 1, True), (7, 40, 2, 3, False)]
)
def test_residual_norm(rows, width, heads, count, first):
    residual, output, norm, normed, total = parts(rows, width, heads, count, first)
    x = torch.empty_like(residual)
    residual_norm(residual, output, norm, residual, x)
    torch.testing.assert_close(x.double(), normed, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(residual.double(), total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "width", "count", "first", "relu"),
    [(1, 24, 1, False, False), (4, 40, 2, True, True), (19, 32, 4, False, False)],
)
def test_a_norm_and_its_product_in_one(rows, width, count, first, relu):
    residual, output, norm, normed, total = parts(rows, width, 0, count, first)
    weight, bias = draw(50, width, seed=7), draw(50, seed=8)
    before, new, out = residual.clone(), torch.empty_like(residual), torch.empty(rows, 50, device=DEVICE)
    norm_linear(residual, output, norm, new, weight, bias, out, relu=relu)
    wanted = F.linear(normed, weight.double(), bias.double())
    torch.testing.assert_close(out.double(), wanted.relu() if relu else wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(new.double(), total, rtol=1e-5, atol=1e-5)
    assert torch.equal(residual, before), "other programs still read it"


@pytest.mark.parametrize(
    ("rows", "inner", "count"), [(1, 24, 1), (20, 600, 1), (70, 90, 1), (3, 1024, 2), (3, 1100, 2)]
)
def test_thin_products_in_parts(rows, inner, count):
    x, weight = draw(rows, inner, seed=1), draw(37, inner, seed=2)
    out = torch.empty(count, rows, 37, device=DEVICE)
    thin_linear(x, weight, None, out)
    torch.testing.assert_close(out.sum(0).double(), x.double() @ weight.double().T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "inner", "sums", "count"), [(1, 24, 1, 1), (20, 32, 5, 1), (70, 90, 3, 1), (3, 1024, 64, 2)]
)
def test_thin_products_of_rows_over_their_root_mean_square(rows, inner, sums, count):
    x, weight, squares = draw(rows, inner, seed=1), draw(37, inner, seed=2), draw(rows, sums, seed=3).square()
    out = torch.empty(count, rows, 37, device=DEVICE)
    thin_linear(x, weight, None, out, squares, 0.1)
    normed = x.double() * (squares.double().sum(1, keepdim=True) / inner + 0.1).rsqrt()
    torch.testing.assert_close(out.sum(0).double(), normed @ weight.double().T, rtol=1e-4, atol=1e-3)


def test_the_last_tokens_are_embedded_at_their_positions():
    table, positions = draw(11, 24, seed=1), draw(9, 24, seed=2)
    tokens = torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.int32, device=DEVICE)
    active = torch.tensor([2, -1, 0], dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([4, 5, 8], dtype=torch.int32, device=DEVICE)
    norm = Norm(draw(24, seed=3), draw(24, seed=4), 1e-5, True)
    wanted = torch.stack([table[t] * 3 + positions[p] for t, p in ((5, 8), (6, 8), (1, 4), (2, 4))])
    for use in (None, norm):
        residual, x = torch.empty(6, 24, device=DEVICE), torch.empty(6, 24, device=DEVICE)
        embed(tokens, active, lengths, table, positions, 3.0, use, residual, x, beam=2)
        torch.testing.assert_close(residual[[0, 1, 4, 5]], wanted)
        assert not residual[[2, 3]].any()
        normed = wanted if use is None else F.layer_norm(wanted, (24,), norm.weight, norm.bias, 1e-5)
        torch.testing.assert_close(x[[0, 1, 4, 5]], normed, rtol=1e-5, atol=1e-5)
