"""Decoding step by step with a cache is attending in one go."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import rela
from tests.attention.attention_cases import KINDS, attention, normal

C, H = 12, 6
EXACT = {"rtol": 1e-9, "atol": 1e-10}


@settings(deadline=None, max_examples=6)
@given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=7),
    groups=st.sampled_from([1, 2, 3, 6]),
    layout=st.sampled_from(["batch_first", "batch_second", "unbatched"]),
    need_weights=st.booleans(),
    recorded=st.booleans(),
)
@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_is_causal_in_one_go(kind, steps, groups, layout, need_weights, recorded):
    """One or several positions a step, grouped heads, any layout, with gradients recorded or not."""
    module = attention(kind, C, H, num_kv_heads=groups, batch_first=layout == "batch_first").eval()
    time = {"batch_first": 1, "batch_second": 0, "unbatched": 0}[layout]
    x = normal(3, sum(steps), C, seed=sum(steps))
    x = {"batch_first": x, "batch_second": x.transpose(0, 1), "unbatched": x[0]}[layout]
    cache, outputs = rela.KVCache(), []
    with torch.set_grad_enabled(recorded):
        at_once, all_weights = module(x, x, x, is_causal=True, need_weights=need_weights)
        for part in x.split(steps, dim=time):
            out, weights = module(part, part, part, is_causal=True, need_weights=need_weights, cache=cache)
            outputs.append(out)
    assert_close(torch.cat(outputs, time), at_once, **EXACT)
    assert len(cache) == sum(steps)
    if need_weights:
        assert_close(weights, all_weights[..., -steps[-1] :, :], **EXACT)


def test_gradients_flow_through_the_cache():
    """Steps write nowhere that an earlier step's gradient needs."""
    module = attention("rela-g", C, H)
    x = normal(2, 5, C)

    def gradients(by_step: bool) -> dict[str, torch.Tensor]:
        module.zero_grad()
        if by_step:
            cache = rela.KVCache()
            out = torch.cat([module(part, part, part, is_causal=True, cache=cache)[0] for part in x.split(1, 1)], 1)
        else:
            out = module(x, x, x, is_causal=True)[0]
        out.square().sum().backward()
        return {name: parameter.grad for name, parameter in module.named_parameters()}

    assert_close(gradients(True), gradients(False), **EXACT)


@pytest.mark.parametrize(
    "options", [{}, {"num_kv_heads": 2}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True, "add_zero_attn": True}]
)
@pytest.mark.parametrize("kind", ["softmax", "rela-g"])
def test_remembered_keys_are_the_keys(kind: str, options: dict):
    """Cross attention: projected once, looked at again and again, nothing appended."""
    module = attention(kind, C, H, **options).eval()
    query = normal(2, 3, C)
    key, value = normal(2, 5, options.get("kdim", C), seed=1), normal(2, 5, options.get("vdim", C), seed=2)
    hidden = torch.tensor([[False] * 5, [False] * 2 + [True] * 3])
    memory = module.remember(key, value)
    for _ in range(2):
        for need_weights in (True, False):
            call = {"key_padding_mask": hidden, "need_weights": need_weights}
            assert_close(module(query, cache=memory, **call), module(query, key, value, **call), **EXACT)
    assert len(memory) == 5


def test_remember_in_every_layout():
    for batch_first in (True, False):
        module = attention("rela-g", C, H, batch_first=batch_first)
        key = normal(5, 5, C)
        assert_close(
            module(key[:2] if not batch_first else key[:, :2], cache=module.remember(key))[0],
            module(key[:2] if not batch_first else key[:, :2], key, key)[0],
        )
        one = normal(4, C)
        assert_close(module(one[:1], cache=module.remember(one))[0], module(one[:1], one, one)[0])


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 20), st.integers(0, 5))
def test_reorder_makes_rows_what_others_were(rows: list[int], before: int, after: int):
    """Beams are copied, finished sentences leave, and what follows is appended to the rows as they are now."""
    keys, values = normal(3, 2, before + 1, 4), normal(3, 2, before + 1, 3, seed=1)
    cache = rela.KVCache()
    for position in range(before + 1):
        cache.append(keys[:, :, position : position + 1], values[:, :, position : position + 1])
    cache.reorder(torch.tensor(rows))
    more = normal(len(rows), 2, after, 4, seed=2), normal(len(rows), 2, after, 3, seed=3)
    cache.append(*more)
    assert torch.equal(cache.keys, torch.cat([keys[rows], more[0]], 2))
    assert torch.equal(cache.values, torch.cat([values[rows], more[1]], 2))


def test_room_doubles():
    """256 single steps make room a handful of times, not 256."""
    cache, moves, room = rela.KVCache(), 0, None
    for position in range(256):
        cache.append(torch.full((1, 1, 1, 1), float(position)), torch.zeros(1, 1, 1, 1))
        moves += cache.keys.untyped_storage().nbytes() != room
        room = cache.keys.untyped_storage().nbytes()
    assert cache.keys.flatten().tolist() == list(range(256))
    assert moves <= 8
    assert room <= 2 * 256 * 4


def test_what_the_cache_was_given_is_not_written_to():
    keys = normal(1, 1, 4, 2)
    copy = keys.clone()
    cache = rela.KVCache(keys, keys)
    cache.append(torch.ones(1, 1, 3, 2, dtype=torch.float64), torch.ones(1, 1, 3, 2, dtype=torch.float64))
    cache.append(torch.ones(1, 1, 1, 2, dtype=torch.float64), torch.ones(1, 1, 1, 2, dtype=torch.float64))
    assert torch.equal(keys, copy)
    assert len(cache) == 8


def test_an_empty_cache_goes_to_a_device_too():
    assert len(rela.KVCache().to(torch.device("cpu"))) == 0
    moved = rela.KVCache(normal(1, 2, 3, 4), normal(1, 2, 3, 4)).to(torch.device("meta"))
    assert (moved.keys.device.type, len(moved)) == ("meta", 3)


BAD = {
    "keys alone": (lambda: rela.KVCache(normal(1, 2, 3, 4)), ValueError, "keys and values were not given together"),
    "three dimensions": (
        lambda: rela.KVCache().append(normal(2, 3, 4), normal(2, 3, 4)),
        ValueError,
        "keys have shape",
    ),
    "not a tensor": (lambda: rela.KVCache().append(3, normal(1, 2, 3, 4)), TypeError, "keys are a int"),
    "values that would repeat": (
        lambda: filled().append(normal(2, 3, 4, 5), normal(2, 3, 1, 5)),
        ValueError,
        "values have shape",
    ),
    "another batch": (lambda: filled().append(normal(1, 3, 1, 5), normal(1, 3, 1, 5)), ValueError, "as in the cache"),
    "another head size": (
        lambda: filled().append(normal(2, 3, 1, 4), normal(2, 3, 1, 4)),
        ValueError,
        "as in the cache",
    ),
    "another type": (
        lambda: filled().append(normal(2, 3, 1, 5).float(), normal(2, 3, 1, 5)),
        TypeError,
        "keys are torch.float32",
    ),
    "another device": (
        lambda: filled().append(normal(2, 3, 1, 5).to("meta"), normal(2, 3, 1, 5)),
        ValueError,
        "keys are on meta",
    ),
    "reading an empty one": (lambda: rela.KVCache().keys, ValueError, "the cache is empty"),
}


def filled() -> rela.KVCache:
    return rela.KVCache(normal(2, 3, 2, 5), normal(2, 3, 2, 5))


@pytest.mark.parametrize("case", BAD)
def test_bad_positions(case: str):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_cache_of_another_batch_never_broadcasts(need_weights: bool):
    module = attention("rela-g", C, H)
    with pytest.raises(ValueError, match=r"cache holds keys of shape \[1, 6, 5, 2\]; wanted \[3, 6, 'S', 2\]"):
        module(normal(3, 2, C), cache=module.remember(normal(1, 5, C)), need_weights=need_weights)
    with pytest.raises(ValueError, match="cache holds keys"):
        attention("rela-g", C, 3)(normal(1, 2, C), cache=module.remember(normal(1, 5, C)))


def test_gradients_of_queries_over_frozen_keys():
    """The keys of a step need no gradient, and those of the steps before must still be there for the queries'."""
    module = attention("relu", batch_first=True, num_kv_heads=1)
    for parameter in (module.k_proj_weight, module.v_proj_weight, module.in_proj_bias):
        parameter.requires_grad_(False)
    x = normal(2, 5, module.embed_dim)
    module(x, x, x, is_causal=True)[0].square().sum().backward()
    wanted = module.q_proj_weight.grad.clone()
    module.zero_grad()
    cache = rela.KVCache()
    parts = [module(part, part, part, is_causal=True, cache=cache)[0] for part in x.split(1, dim=1)]
    torch.cat(parts, 1).square().sum().backward()
    torch.testing.assert_close(module.q_proj_weight.grad, wanted)


def test_copies_go_on_from_one_prefix():
    """Room behind the positions of a cache belongs to it alone."""
    for prefix in (0, 1, 5):
        cache = rela.KVCache()
        for _ in range(prefix):
            cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        branches = [copy.copy(cache), copy.copy(cache), copy.deepcopy(cache), cache]
        for number, branch in enumerate(branches):
            for _ in range(2):
                branch.append(torch.full((1, 1, 1, 2), number + 1.0), torch.full((1, 1, 1, 2), -number - 1.0))
        for number, branch in enumerate(branches):
            assert branch.keys[0, 0, :, 0].tolist() == [0.0] * prefix + [number + 1.0] * 2
            assert branch.values[0, 0, :, 1].tolist() == [0.0] * prefix + [-number - 1.0] * 2


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("prefix", [0, 3])
def test_an_error_leaves_the_cache_as_it_was(prefix: int, recorded: bool):
    """The caller may mend the call and give the same positions again."""
    module, x = attention("rela-g", C, H), normal(2, 5, C)
    cache, head, tail = rela.KVCache(), x[:, :prefix], x[:, prefix:]
    with torch.set_grad_enabled(recorded):
        if prefix:
            module(head, head, head, cache=cache, is_causal=True)
        for wrong in ({"attn_mask": torch.zeros(1, 1)}, {"window": 3}, {"key_lengths": torch.ones(1)}):
            with pytest.raises((TypeError, ValueError)):
                module(tail, tail, tail, cache=cache, is_causal=True, **wrong)
            assert len(cache) == prefix
        out, _ = module(tail, tail, tail, cache=cache, is_causal=True)
        wanted, _ = module(x, x, x, is_causal=True)
    assert_close(out, wanted[:, prefix:], **EXACT)


@torch.no_grad()
def test_two_attentions_do_not_append_to_one_cache():
    first, second, x = attention("rela-g", C, H), attention("rela-g", C, H), normal(2, 3, C)
    for cache in (rela.KVCache(), first.remember(x)):
        first(x, x, x, cache=cache)
        length = len(cache)
        with pytest.raises(ValueError, match="another attention; wanted a cache for each"):
            second(x, x, x, cache=cache)
        assert len(cache) == length
        second(x, cache=cache)  # to look at the keys of another is no error
        for branch in (copy.copy(cache), copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
            copy.deepcopy(first)(x, x, x, cache=branch)


def test_gradients_of_a_threshold_over_frozen_projections():
    """The gradient of θ reads the values of the steps before."""
    module = attention("rela-g", C, H, threshold="learned")
    module.requires_grad_(False).threshold.requires_grad_(True)
    x = normal(2, 5, C)
    module(x, x, x, is_causal=True)[0].square().sum().backward()
    wanted, module.threshold.grad = module.threshold.grad, None
    cache = rela.KVCache()
    parts = [module(part, part, part, is_causal=True, cache=cache)[0] for part in x.split(1, dim=1)]
    torch.cat(parts, 1).square().sum().backward()
    assert_close(module.threshold.grad, wanted)


def test_remembered_keys_of_another_type_are_named():
    module, x = attention("rela-g", C, H, dtype=torch.float32), normal(2, 3, C, dtype=torch.float32)
    memory = module.remember(x)
    with torch.autocast("cpu"), pytest.raises(TypeError, match=r"cache holds keys of torch.float32; wanted torch.bf"):
        module(x, cache=memory)


@torch.no_grad()
def test_a_cache_of_inference_mode_goes_on_outside_it():
    module, x = attention("rela-g", C, H), normal(1, 6, C)
    cache, outputs = rela.KVCache(), []
    for position, part in enumerate(x.split(1, dim=1)):
        with torch.inference_mode(position < 3):
            outputs.append(module(part, part, part, cache=cache)[0])
    assert_close(torch.cat(outputs, 1), module(x, x, x, is_causal=True)[0], **EXACT)
