"""Packed attention: sequences end to end give what each gives alone, and nothing leaks between them."""

import pytest
import torch

pytest.importorskip("triton")
from rela.kernels.attention.functional import relu_attention, relu_attention_packed
from tests.kernels.exactness import assert_as_exact_as, draw, packing_of, reference, seen_by


def one_by_one(q, k, v, threshold, lengths_q, lengths_k, causal, **options):
    """Each sequence alone through the plain equation; rows after the last one are zero."""
    rows = q.new_zeros(q.shape)
    begin_q = begin_k = 0
    for t, s in zip(lengths_q, lengths_k, strict=True):
        parts = [q[begin_q : begin_q + t], k[begin_k : begin_k + s], v[begin_k : begin_k + s]]
        alone = [part.transpose(0, 1).unsqueeze(0) for part in parts]
        out = reference(*alone, threshold, seen=seen_by(*alone[:2], causal=causal), **options)
        rows = torch.cat([rows[:begin_q], out[0].transpose(0, 1), rows[begin_q + t :]])
        begin_q, begin_k = begin_q + t, begin_k + s
    return rows


SELF = ([5, 63, 1, 0, 17, 40], [5, 63, 1, 0, 17, 40])
CROSS = ([3, 40, 0, 1, 20], [33, 2, 5, 0, 70])  # a query without keys, keys without a query


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("lengths_q", "lengths_k"), [SELF, CROSS], ids=["self", "cross"])
def test_each_sequence_gives_what_it_gives_alone(lengths_q, lengths_k, causal, deterministic):
    padding = 9  # rows after the last sequence, as a static shape has them
    q = draw(sum(lengths_q) + padding, 4, 24, seed=1)
    k, v = (draw(sum(lengths_k) + padding, 2, 24, seed=seed) for seed in (2, 3))
    queries, keys = packing_of(lengths_q), packing_of(lengths_k)

    def fused(q, k, v, threshold):
        return relu_attention_packed(
            q,
            k,
            v,
            queries,
            keys,
            scale=0.3,
            causal=causal,
            threshold=threshold,
            deterministic=deterministic,
        )

    def plain(q, k, v, threshold):
        return one_by_one(q, k, v, threshold, lengths_q, lengths_k, causal, scale=0.3)

    assert_as_exact_as(fused, plain, q, k, v, draw(4, seed=4) * 0.2)


def test_rows_after_the_last_sequence_are_zero_and_give_no_gradient():
    q, k, v = (draw(40, 2, 16, seed=seed).requires_grad_() for seed in (1, 2, 3))
    packing = packing_of([7, 13])
    out = relu_attention_packed(q, k, v, packing, packing, scale=0.25)
    gradients = torch.autograd.grad(out, [q, k, v], torch.ones_like(out))
    for rows in (out, *gradients):
        assert rows[20:].abs().max() == 0
        assert rows[:20].abs().max() > 0


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_lies_in_the_padding_does_not_matter(deterministic):
    rows = [draw(40, 2, 16, seed=seed) for seed in range(4)]
    packing = packing_of([7, 13])

    def answers():
        q, k, v, d_out = (x.clone() for x in rows)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = relu_attention_packed(*inputs, packing, packing, scale=0.25, deterministic=deterministic)
        return out, *torch.autograd.grad(out, inputs, d_out)

    clean = answers()
    for x in rows:
        x[20:] = float("nan")
    for got, wanted in zip(answers(), clean, strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_equal_lengths_are_a_batch(causal):
    q, k, v = (draw(3, 2, 33, 16, seed=seed) for seed in (1, 2, 3))
    packing = packing_of([33] * 3)
    packed = (x.transpose(1, 2).reshape(99, 2, 16) for x in (q, k, v))
    out = relu_attention_packed(*packed, packing, packing, scale=0.25, causal=causal)
    batch = relu_attention(q, k, v, scale=0.25, causal=causal)
    torch.testing.assert_close(out.view(3, 33, 2, 16).transpose(1, 2), batch)


def test_wrong_longest_lengths_do_not_change_the_answer():
    q, k, v = (draw(50, 2, 16, seed=seed) for seed in (1, 2, 3))
    right, wrong = packing_of([30, 20]), packing_of([30, 20], longest=1)
    out = relu_attention_packed(q, k, v, right, right, scale=0.25)
    torch.testing.assert_close(relu_attention_packed(q, k, v, wrong, wrong, scale=0.25), out)


def test_views_of_one_projection_are_read_in_place():
    qkv = draw(50, 3, 2, 16, seed=1)
    packing = packing_of([30, 20])
    apart = [x.contiguous() for x in qkv.unbind(1)]
    out = relu_attention_packed(*qkv.unbind(1), packing, packing, scale=0.25, causal=True)
    assert torch.equal(out, relu_attention_packed(*apart, packing, packing, scale=0.25, causal=True))
    assert out.is_contiguous()
