"""The masks of torch.nn.MultiheadAttention, where True hides, as `attend` takes them, where True shows."""

import pytest
import torch
from torch import Tensor

from rela.attention.masks import split_mask
from rela.attention.module_masks import as_key_mask, as_pair_mask, both_masks, latest_seen, merge_module_masks
from tests.attention.attention_cases import attention, normal

B, H, T, S = 2, 3, 4, 5
Q = torch.zeros(B, H, T, 8)


def test_padding_is_turned_round_and_broadcasts_over_heads_and_queries():
    hidden = torch.arange(S).expand(B, S) > 2
    assert torch.equal(as_key_mask(hidden, Q, S, batched=True)[:, 0, 0], ~hidden)
    with pytest.raises(ValueError, match=r"key_padding_mask has shape \[5\]; wanted \[2, 5\]"):
        as_key_mask(hidden[0], Q, S, batched=True)


def test_a_mask_for_each_head_is_laid_out_by_sentence_then_head():
    hidden = torch.rand(B * H, T, S, generator=torch.Generator().manual_seed(0)) > 0.5
    mask = as_pair_mask(hidden, Q, S)
    for b in range(B):
        for h in range(H):
            assert torch.equal(mask[b, h], ~hidden[b * H + h])
    with pytest.raises(ValueError, match=r"attn_mask has shape \[4, 4\]; wanted \[4, 5\] or \[6, 4, 5\]"):
        as_pair_mask(hidden[0, :, :4], Q, S)
    with pytest.raises(TypeError, match=r"attn_mask is torch\.int64; wanted bool"):
        as_pair_mask(hidden.long(), Q, S)


def test_a_boolean_mask_beside_a_float_one_becomes_minus_infinity():
    shown, bias = torch.tensor([True, False]), torch.tensor([0.5, 0.25])
    assert both_masks(shown, bias).tolist() == [0.5, float("-inf")]
    assert both_masks(None, bias) is bias
    assert both_masks(shown, ~shown).tolist() == [False, False]


def test_causal_alone_is_left_to_attend_and_is_merged_beside_a_mask():
    assert merge_module_masks(None, None, True, Q, S, 0, True) == (None, True)
    hidden = ~latest_seen(T, S, Q.device)
    mask, is_causal = merge_module_masks(None, hidden, True, Q, S, 0, True)
    assert not is_causal
    assert torch.equal(mask[0, 0], ~hidden)


@pytest.mark.parametrize("everything", [torch.zeros(T, S, dtype=torch.bool), torch.zeros(T, S)])
def test_causal_beside_a_mask_that_shows_later_keys_hides_them(everything: Tensor):
    mask, is_causal = merge_module_masks(None, everything, True, Q, S, 0, True)
    assert not is_causal
    assert torch.equal(split_mask(mask)[0][0, 0], latest_seen(T, S, Q.device))


def test_appended_keys_are_open_to_all():
    padding = torch.ones(B, S, dtype=torch.bool)
    mask, _ = merge_module_masks(padding, None, False, Q, S, 2, True)
    assert mask.shape == (B, 1, 1, S + 2)
    assert mask[..., :S].any().item() is False
    assert mask[..., S:].all()


@pytest.mark.parametrize("kind", ["softmax", "rela-g"])
def test_keys_that_are_appended_have_no_bias(kind: str):
    """Those of add_zero_attn and add_bias_kv, beside a mask of floats that hides nothing."""
    module = attention(kind, 12, 3, add_zero_attn=True, add_bias_kv=True)
    x = normal(B, T, 12)
    torch.testing.assert_close(module(x, x, x, attn_mask=torch.zeros(T, T).double())[0], module(x, x, x)[0])
