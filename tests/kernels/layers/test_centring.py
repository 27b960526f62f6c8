"""The centring kernel is its equation, for any lengths, widths and strides."""

import pytest
import torch

pytest.importorskip("triton")

from rela.attention.centring import centre_reference
from rela.kernels.layers.centring import centre_keys
from rela.packing import Packing
from tests.kernels.exactness import DEVICE, assert_as_exact_as, draw


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("width", "lengths", "filler"), [(64, [3, 40, 0, 1], 0), (200, [70], 5), (1, [2, 2], 1), (130, [0, 0], 4)]
)
def test_it_is_the_equation(width, lengths, filler, dtype):
    cu = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()
    k = draw(sum(lengths) + filler, width, dtype=dtype, seed=1)
    share = torch.tensor(0.6, device=DEVICE)

    def fused(k):
        return centre_keys(k, cu, share)

    def plain(k):
        return centre_reference(k, Packing(cu, len(k)), share.to(torch.promote_types(k.dtype, torch.float32)))

    assert_as_exact_as(fused, plain, k)


def test_keys_are_read_where_they_lie():
    wide = draw(9, 100, seed=1)
    cu, share = torch.tensor([0, 4, 8], dtype=torch.int32, device=DEVICE), torch.tensor(1.0, device=DEVICE)
    k = wide[:, 20:80]
    assert torch.equal(centre_keys(k, cu, share), centre_keys(k.contiguous(), cu, share))
    with pytest.raises(ValueError, match="3 dimensions; wanted 2"):
        centre_keys(k[None], cu, share)


def test_the_operator_passes_opcheck(memory_as_it_is):
    cu, share = torch.tensor([0, 4, 8], dtype=torch.int32, device=DEVICE), torch.tensor(0.5, device=DEVICE)
    torch.library.opcheck(torch.ops.rela.centred_keys, (draw(9, 40, seed=1).requires_grad_(), cu, share))
