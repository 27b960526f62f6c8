"""deepcopy, pickle and the state dict give back the same attention, also in the middle of training."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch.testing import assert_close

import rela
from tests.attention.attention_cases import KINDS, attention, normal

C, H = 12, 3


def through_pickle(module):
    return pickle.loads(pickle.dumps(module))


def through_torch_save(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def through_state_dict(module):
    """The state dict as torch.save writes it, read by the loader that runs no code."""
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    threshold = "learned" if isinstance(module.threshold, torch.nn.Parameter) else module.threshold
    other = rela.MultiheadAttention(
        C,
        H,
        batch_first=True,
        dtype=torch.float64,
        kind=module.kind,
        threshold=threshold,
        target_sparsity=module.target_sparsity,
    )
    other.load_state_dict(torch.load(buffer, weights_only=True))
    return other


WAYS = {"deepcopy": copy.deepcopy, "pickle": through_pickle, "save": through_torch_save, "state": through_state_dict}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_copies_attend_alike(kind: str, way: str):
    module = attention(kind, C, H)
    x = normal(2, 5, C)
    module(x, x, x)[0].sum().backward()  # gradients on the parameters must not be in the way
    other = WAYS[way](module)
    assert_close(other(x, x, x), module(x, x, x), rtol=0, atol=0)
    assert other.kind == module.kind
    with torch.no_grad():
        other.out_proj.bias.add_(1.0)
    assert not torch.equal(other(x, x, x)[0], module(x, x, x)[0]), "the copy shares its parameters"


@pytest.mark.parametrize("way", WAYS)
def test_copies_after_a_training_step_with_a_penalty(way: str):
    """The penalty belongs to a graph, which cannot be copied; the copy starts without one and makes its own."""
    module = attention("rela-g", C, H, threshold="learned", target_sparsity=0.6)
    x = normal(2, 5, C)
    module(x, x, x)
    other = WAYS[way](module)
    assert other.penalty is None
    assert module.penalty is not None
    assert torch.equal(other.threshold, module.threshold)
    other(x, x, x)
    assert_close(other.penalty, module.penalty)


def test_a_copied_model_keeps_shared_attentions_shared():
    shared = attention("rela-g", C, H)
    model = copy.deepcopy(torch.nn.ModuleDict({"first": shared, "second": shared}))
    assert model["first"] is model["second"]


@pytest.mark.parametrize("kind", KINDS)
def test_moving_to_another_precision_moves_everything(kind: str):
    module = attention(kind, C, H, threshold=0.0).to(torch.bfloat16)
    assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.bfloat16}
    x = normal(2, 5, C, dtype=torch.bfloat16)
    assert module(x, x, x)[0].dtype == torch.bfloat16


def test_meta_device_and_back():
    """Built without memory, filled from a state dict: how large models are loaded."""
    module = attention("rela-g", C, H, threshold="learned")
    empty = rela.MultiheadAttention(C, H, batch_first=True, threshold="learned", device="meta", dtype=torch.float64)
    empty.load_state_dict(module.state_dict(), assign=True)
    x = normal(2, 5, C)
    assert_close(empty(x, x, x), module(x, x, x), rtol=0, atol=0)


def test_repr_says_what_it_is():
    text = repr(attention("rela-g", C, H, num_kv_heads=1, threshold="learned"))
    for word in ("kind=relu+gated-rms", "num_kv_heads=1", "threshold=learned", "gated=True"):
        assert word in text


def test_every_kind_has_a_name_and_a_meaning():
    for name, kind in rela.PRESETS.items():
        assert rela.attention.kinds.kind_of(name) == kind
        assert rela.attention.kinds.kind_of(kind) is kind
        assert rela.attention.kinds.kind_of(f"{kind.weights}+{kind.norm}") == kind
