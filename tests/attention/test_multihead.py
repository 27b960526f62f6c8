"""The softmax preset is torch.nn.MultiheadAttention: outputs, weights, gradients, masks, state dict."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.testing import assert_close

import rela
from rela.attention.kinds import kind_of
from tests.attention.attention_cases import KINDS, attention, normal, with_random_parameters

pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched")
B, T, S, C, H = 2, 5, 7, 12, 3
LAYOUTS = ("batch_first", "batch_second", "unbatched")
OPTIONS = {
    "plain": {},
    "no_bias": {"bias": False},
    "kdim": {"kdim": 5, "vdim": 9},
    "kdim_no_bias": {"kdim": 5, "bias": False},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True},
    "bias_kv_zero_attn_vdim": {"add_bias_kv": True, "add_zero_attn": True, "vdim": 4},
}


def twins(layout: str = "batch_first", dtype: torch.dtype = torch.float64, **options):
    """torch's module and ours with the same parameters, loaded through the state dict."""
    options = {"batch_first": layout == "batch_first", "dtype": dtype, **options}
    theirs = with_random_parameters(nn.MultiheadAttention(C, H, **options))
    ours = rela.MultiheadAttention(C, H, kind="softmax", **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(layout: str, kdim: int = C, vdim: int = C, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    made = []
    for seed, (length, width) in enumerate(((T, C), (S, kdim), (S, vdim))):
        x = normal(B, length, width, seed=seed, dtype=dtype)
        x = {"batch_first": x, "batch_second": x.transpose(0, 1), "unbatched": x[0]}[layout]
        made.append(x.clone().requires_grad_())
    return made


def attn_mask(name: str, layout: str) -> Tensor | None:
    """The first key stays visible to all: torch turns a row without keys into NaN."""
    if name == "none":
        return None
    heads = H if layout == "unbatched" else B * H
    size = (T, S) if name.endswith("2d") else (heads, T, S)
    if name.startswith("float"):
        mask = normal(*size, seed=7)
        mask[..., 3] = float("-inf")
        return mask
    mask = normal(*size, seed=8) > 0.3
    mask[..., 0] = False
    return mask


def padding_mask(name: str, layout: str) -> Tensor | None:
    if name == "none":
        return None
    hidden = torch.tensor([[False] * 5 + [True] * 2, [False] * 3 + [True] * 4])
    mask = hidden if name == "bool" else torch.where(hidden, float("-inf"), 0.25).double()
    return mask[0] if layout == "unbatched" else mask


def assert_twins(theirs: nn.Module, ours: nn.Module, tensors: list[Tensor], tolerance: dict | None = None, **call):
    """Same outputs, weights, and gradients of every input and parameter."""
    tolerance = tolerance or {"rtol": 1e-10, "atol": 1e-12}
    results = []
    for module in (theirs, ours):
        copies = [x.detach().clone().requires_grad_() for x in tensors]
        module.zero_grad()
        out, weights = module(*copies, **call)
        (out * normal(*out.shape, seed=99, dtype=out.dtype)).sum().backward()
        results.append((out, weights, [x.grad for x in copies], {n: p.grad for n, p in module.named_parameters()}))
    for mine, reference in zip(results[1], results[0], strict=True):
        assert_close(mine, reference, **tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("padding", ["none", "bool", "float"])
@pytest.mark.parametrize("mask", ["none", "bool2d", "float2d", "bool3d", "float3d"])
def test_masks_and_layouts(mask: str, padding: str, layout: str):
    for options in OPTIONS.values():
        theirs, ours = twins(layout, **options)
        assert_twins(
            theirs,
            ours,
            inputs(layout, options.get("kdim", C), options.get("vdim", C)),
            attn_mask=attn_mask(mask, layout),
            key_padding_mask=padding_mask(padding, layout),
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", OPTIONS, ids=list(OPTIONS))
def test_what_is_returned(options: str, layout: str):
    """need_weights and average_attn_weights, shapes included; without weights the path is another one."""
    theirs, ours = twins(layout, **OPTIONS[options])
    tensors = inputs(layout, OPTIONS[options].get("kdim", C), OPTIONS[options].get("vdim", C))
    for call in ({}, {"average_attn_weights": False}, {"need_weights": False}):
        assert_twins(theirs, ours, tensors, **call)
        assert_twins(theirs, ours, tensors, attn_mask=attn_mask("bool2d", layout), **call)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_self_attention_with_one_tensor(layout: str, need_weights: bool):
    """query is key is value takes one product for all three projections."""
    theirs, ours = twins(layout)
    x = inputs(layout)[0]
    gradients = []
    for module in (theirs, ours):
        copy = x.detach().clone().requires_grad_()
        out, _ = module(copy, copy, copy, need_weights=need_weights)
        out.square().sum().backward()
        gradients.append((out, copy.grad, {n: p.grad for n, p in module.named_parameters()}))
    assert_close(gradients[1], gradients[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_is_causal(need_weights: bool, padded: bool):
    """torch wants the mask beside the hint; ours gives the same with it and without it."""
    theirs, ours = twins()
    x = inputs("batch_first")[1]
    later = nn.Transformer.generate_square_subsequent_mask(S, dtype=torch.float64)
    padding = padding_mask("bool", "batch_first") if padded else None
    call = {"need_weights": need_weights, "key_padding_mask": padding}
    expected = theirs(x, x, x, attn_mask=later, is_causal=True, **call)
    lowest = torch.finfo(torch.float64).min
    for mask in (None, later, later.isinf(), later.clamp(min=-1e9), later.clamp(min=lowest)):
        assert_close(ours(x, x, x, attn_mask=mask, is_causal=True, **call), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_is_causal_and_a_mask_that_shows_later_keys_both_hold(kind: str, need_weights: bool):
    """The same in eager mode, compiled and exported: nothing depends on where the mask's values can be read."""
    module = attention(kind, C, H).eval()
    x = normal(B, S, C)
    hidden = normal(S, S, seed=3) > 0.5
    hidden.fill_diagonal_(False)
    later = ~torch.ones(S, S, dtype=torch.bool).tril()
    expected, _ = module(x, x, x, attn_mask=hidden | later)
    call = {"attn_mask": hidden, "is_causal": True, "need_weights": need_weights}
    assert_close(module(x, x, x, **call)[0], expected, rtol=1e-10, atol=1e-12)
    if kind in ("softmax", "rela-g"):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert_close(compiled(x, x, x, **call)[0], expected, rtol=1e-10, atol=1e-12)
        program = torch.export.export(module, (x, x, x), call)
        assert_close(program.module()(x, x, x, **call)[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5)])
def test_is_causal_beside_a_mask_that_begins_with_the_keys(queries: int, keys: int):
    """torch aligns such a mask at the start; the mask beside the hint decides, also where T ≠ S."""
    theirs, ours = twins()
    q, k = normal(B, queries, C, seed=1), normal(B, keys, C, seed=2)
    later = ~torch.ones(queries, keys, dtype=torch.bool).tril()
    for need_weights in (True, False):
        call = {"attn_mask": later, "is_causal": True, "need_weights": need_weights}
        assert_close(ours(q, k, k, **call), theirs(q, k, k, **call), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", ["softmax", "rela-g"])
def test_autocast_takes_appended_keys(kind: str, need_weights: bool):
    """Their parameters stay in float32 beside projected keys of half precision."""
    module = rela.MultiheadAttention(16, 4, kind=kind, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    wanted, _ = module(x, x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = module(x, x, x, need_weights=need_weights)
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), wanted, rtol=0.05, atol=0.05)
    found.float().sum().backward()
    assert module.bias_k.grad.dtype == torch.float32


def test_float32_agrees_to_its_rounding():
    """Each output sums C products of numbers of order one: the two may differ by a few roundings of that sum."""
    theirs, ours = twins(dtype=torch.float32)
    bound = 8 * C * torch.finfo(torch.float32).eps
    assert_twins(theirs, ours, inputs("batch_first", dtype=torch.float32), {"rtol": bound, "atol": bound})


def test_dropout_hits_the_same_weights():
    """One seed, one pattern; ours gives the weights back as they were before dropout."""
    theirs, ours = twins(dropout=0.4)
    tensors = inputs("batch_first")
    _, undropped = ours.eval()(*tensors)
    ours.train()
    torch.manual_seed(5)
    expected, _ = theirs(*tensors)
    torch.manual_seed(5)
    out, weights = ours(*tensors)
    assert_close(out, expected, rtol=1e-10, atol=1e-12)
    assert_close(weights, undropped)
    assert not torch.equal(out, ours.eval()(*tensors)[0])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_state_dict_goes_both_ways(options: dict):
    theirs, ours = twins(**options)
    back = nn.MultiheadAttention(C, H, dtype=torch.float64, batch_first=True, **options)
    back.load_state_dict(ours.state_dict())
    assert list(back.state_dict()) == list(theirs.state_dict()) == list(ours.state_dict())
    assert_close(dict(back.state_dict()), dict(theirs.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_one_seed_gives_both_the_same_start(options: dict):
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(C, H, **options)
    torch.manual_seed(3)
    ours = rela.MultiheadAttention(C, H, kind="softmax", **options)
    assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=0, atol=0)


def test_positional_arguments_are_in_torch_order():
    """Constructor and forward, every argument by position."""
    arguments = (C, H, 0.0, True, True, True, 5, 9, True, None, torch.float64)
    theirs = nn.MultiheadAttention(*arguments)
    ours = rela.MultiheadAttention(*arguments, kind="softmax")
    ours.load_state_dict(theirs.state_dict())
    call = (*inputs("batch_first", 5, 9), padding_mask("bool", ""), True, attn_mask("bool2d", ""), False, False)
    assert_close(ours(*call), theirs(*call), rtol=1e-10, atol=1e-12)


STEP = 1e-6
THRESHOLDED = [kind for kind in KINDS if not kind_of(kind).is_distribution]


@pytest.mark.parametrize(("kind", "threshold"), [*((k, 0.0) for k in KINDS), *((k, "learned") for k in THRESHOLDED)])
def test_gradients_of_modules_are_exact(kind: str, threshold: float | str):
    """All parameters at once, threshold included, with a padded key and a null row by mask."""
    module = attention(kind, 4, 2, threshold=threshold)
    x = normal(1, 3, 4, seed=11)
    hidden = torch.tensor([[False, False, True], [True, True, True], [False, True, False]])
    names, values = zip(*module.named_parameters(), strict=True)

    def call(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(
            module, dict(zip(names, values, strict=True)), (x, x, x), {"attn_mask": hidden}
        )[0]

    assert ("threshold" in names) == (threshold == "learned")
    assert gradcheck(call, (x.requires_grad_(), *values), eps=STEP, atol=1e-5, rtol=1e-4)


def test_checks_are_made_once_for_a_layout_and_still_find_every_other():
    module = rela.MultiheadAttention(8, 2, batch_first=True)
    x = torch.zeros(2, 3, 8)
    for _ in range(2):
        module(x, x, x, need_weights=False)
    for wrong in (
        torch.zeros(2, 3, 7),
        torch.zeros(2, 3, 8, dtype=torch.float64),
        torch.zeros(3, 8, dtype=torch.int64),
    ):
        with pytest.raises((TypeError, ValueError)):
            module(wrong, wrong, wrong)
    with pytest.raises(ValueError, match="batch size"):
        module(x, x[:1], x[:1])
    with pytest.raises(TypeError, match="key is a list"):
        module(x, [x], x)
    with pytest.raises(TypeError):
        module.double()(x, x, x)


@pytest.mark.parametrize("need_weights", [False, True])
def test_lengths_starts_and_windows_are_masks(need_weights: bool):
    torch.manual_seed(0)
    module = rela.MultiheadAttention(8, 2, batch_first=True)
    x, lengths, starts = torch.randn(2, 5, 8), torch.tensor([5, 3]), torch.tensor([2, 0])
    given = {"key_lengths": lengths, "key_starts": starts, "window": (1, 2)}
    out, _ = module(x, x, x, need_weights=need_weights, **given)
    s, t = torch.arange(5), torch.arange(5)[:, None]
    hidden = (s >= lengths[:, None]) | (s < starts[:, None])
    wanted, _ = module(x, x, x, key_padding_mask=hidden, attn_mask=(s < t - 1) | (s > t + 2))
    torch.testing.assert_close(out, wanted)
    with pytest.raises(ValueError, match="key_lengths run from 3 to 6"):
        module(x, x, x, need_weights=need_weights, key_lengths=torch.tensor([6, 3]))


def drawn_call(seed: int) -> tuple[dict[str, Any], int, int, list[Tensor], dict[str, Any]]:
    """Options of a constructor, its sizes, and the inputs and options of a call, all drawn from a seed."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    heads = choose.choice([1, 2, 3, 4])
    width, batch_first, unbatched = heads * choose.choice([1, 3, 8]), choose.random() < 0.5, choose.random() < 0.2
    options: dict[str, Any] = {name: choose.random() < 0.3 for name in ("add_bias_kv", "add_zero_attn")}
    options |= {"bias": choose.random() < 0.7, "batch_first": batch_first}
    if apart := choose.random() < 0.4:
        options |= {"kdim": choose.randint(1, 9), "vdim": choose.randint(1, 9)}
    together = not apart and choose.random() < 0.4
    B, T = 1 if unbatched else choose.randint(1, 3), choose.randint(1, 6)
    S = T if together else choose.randint(1, 6)

    def drawn(rows: int, columns: int) -> Tensor:
        shape = (rows, columns) if unbatched else (B, rows, columns) if batch_first else (rows, B, columns)
        return torch.randn(*shape, dtype=torch.double, requires_grad=True)

    query = drawn(T, width)
    key = query if together else drawn(S, options.get("kdim", width))
    value = query if together else drawn(S, options.get("vdim", width))
    masks = {
        "hidden pairs": torch.rand(T, S) < 0.3,
        "bias": torch.randn(T, S, dtype=torch.double),
        "hidden pairs of heads": torch.rand(B * heads, T, S) < 0.3,
        "bias of heads": torch.randn(B * heads, T, S, dtype=torch.double).masked_fill(torch.rand(T, S) < 0.2, -inf),
        "later keys": torch.ones(T, S).triu(1).bool(),
        "none": None,
    }
    chosen = choose.choice([name for name in masks if T == S or name != "later keys"])
    lengths = (S,) if unbatched else (B, S)
    paddings = [None, torch.rand(*lengths) < 0.3, torch.randn(*lengths, dtype=torch.double)]
    call = {"attn_mask": masks[chosen], "key_padding_mask": choose.choice(paddings)}
    call |= {name: choose.random() < 0.5 for name in ("need_weights", "average_attn_weights")}
    call["is_causal"] = chosen == "later keys" and choose.random() < 0.5
    return options, width, heads, [query, key, value], call


@pytest.mark.campaign
def test_random_calls_are_those_of_torch():
    """Outputs, weights and gradients agree to 1e-9, but for two cases in which PyTorch contradicts itself.

    Where a query sees no key it gives NaN. With `is_causal`, a key of add_bias_kv or add_zero_attn and no weights it
    hides that key from all but the last queries; when weights are asked for it does not, and agrees with us.
    """
    agreed = 0
    for seed in range(1500):
        options, width, heads, tensors, call = drawn_call(seed)
        theirs = nn.MultiheadAttention(width, heads, dtype=torch.double, **options)
        ours = rela.MultiheadAttention(width, heads, dtype=torch.double, kind="softmax", **options)
        for parameter in theirs.parameters():
            nn.init.normal_(parameter)
        ours.load_state_dict(theirs.state_dict())
        if call["is_causal"] and (options["add_bias_kv"] or options["add_zero_attn"]):
            call["need_weights"] = True
        found = []
        for module in (theirs, ours):
            out, weights = module(*tensors, **call)
            slopes = torch.linspace(-1, 1, out.numel(), dtype=torch.double).view_as(out)
            given = [*{id(x): x for x in tensors}.values(), *module.parameters()]
            gradients = torch.autograd.grad((out * slopes).sum(), given, allow_unused=True)
            found.append([x for x in (out, weights, *gradients) if x is not None])
        if any(x.isnan().any() for x in found[0]):
            assert all(x.isfinite().all() for x in found[1]), seed
            continue
        assert_close(found[1], found[0], rtol=1e-9, atol=1e-10, msg=lambda text, seed=seed: f"{seed}: {text}")
        agreed += 1
    assert agreed > 1300


@pytest.mark.parametrize("causal", [False, True])
def test_nested_sentences_give_what_each_gives_alone(causal: bool):
    module = attention("rela-g").eval()
    sentences = [normal(length, 12, seed=length) for length in (4, 1, 7)]
    nested = torch.nested.as_nested_tensor(sentences)
    out, _ = module(nested, nested, nested, need_weights=False, is_causal=causal)
    for sentence, found in zip(sentences, out.unbind(), strict=True):
        hidden = torch.ones(len(sentence), len(sentence), dtype=torch.bool).triu(1) if causal else None
        wanted, _ = module(sentence, sentence, sentence, attn_mask=hidden, need_weights=False)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("limit", [{"window": (0, 0)}, {"key_lengths": torch.ones(2)}, {"key_starts": torch.ones(2)}])
def test_a_nested_tensor_takes_no_limits(limit: dict[str, Any]):
    nested = torch.nested.as_nested_tensor([normal(4, 12), normal(2, 12)])
    with pytest.raises(ValueError, match="query is a nested tensor; wanted a plain one"):
        attention("rela-g")(nested, nested, nested, need_weights=False, **limit)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_keeps_its_layout(layout: torch.layout):
    module, sentences = attention("rela-g"), [normal(4, 12), normal(2, 12)]
    nested = torch.nested.nested_tensor(sentences, layout=layout)
    added = nested + module(nested, nested, nested, need_weights=False)[0]
    assert added.layout == layout
    for found, sentence in zip(added.unbind(), sentences, strict=True):
        wanted, _ = module(sentence, sentence, sentence, need_weights=False)
        assert_close(found, sentence + wanted)
