"""Which device a name means, and where the kernels serve."""

import pytest
import torch

from rela import device


def test_auto_is_the_gpu_where_there_is_one():
    assert device.pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device.pick_device("cpu") == torch.device("cpu")


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="device is 'tpux'; wanted auto, cpu or cuda"):
        device.pick_device("tpux")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no usable GPU; wanted auto or cpu"):
            device.pick_device("cuda")


def test_kernels_serve_on_a_gpu_alone():
    x = torch.zeros(3)
    assert not device.triton_serves(x)
    assert not device.triton_serves_half(x.half())
    assert not device.has_bf16(torch.device("cpu"))
