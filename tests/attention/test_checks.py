"""Bad input gets one line that names the argument, what came and what was wanted; nothing is broadcast in silence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rela
from rela.attention.kinds import kind_of
from tests.attention.attention_cases import attention, normal

C, H = 12, 3


def q(*size: int) -> torch.Tensor:
    return normal(*(size or (2, 4, 5, 6)))


def attend(**given):
    arguments = {"q": q(), "k": q(2, 2, 7, 6), "v": q(2, 2, 7, 6), **given}
    return rela.attend(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **{"kind": "relu", **arguments})


FUNCTIONAL = {
    "q no tensor": ({"q": [1.0]}, TypeError, "q is a list; wanted a tensor"),
    "k no tensor": ({"k": None}, TypeError, "k is a NoneType; wanted a tensor"),
    "q unbatched": ({"q": q(4, 5, 6)}, ValueError, r"q has shape \[4, 5, 6\]; wanted 4 dimensions"),
    "k unbatched": ({"k": q(2, 7, 6)}, ValueError, r"k has shape \[2, 7, 6\]"),
    "q without size": ({"q": q()[..., :0]}, ValueError, r"q has shape \[.*, 0\]; wanted a head size above 0"),
    "q integer": ({"q": q().long()}, TypeError, "q is torch.int64; wanted a floating point type"),
    "q complex": ({"q": q().to(torch.complex64)}, TypeError, "q is torch.complex64"),
    "k type": ({"k": q(2, 2, 7, 6).float()}, TypeError, "k is torch.float32; wanted torch.float64, as q"),
    "v type": ({"v": q(2, 2, 7, 6).half()}, TypeError, "v is torch.float16; wanted torch.float64, as q"),
    "k device": ({"k": q(2, 2, 7, 6).to("meta")}, ValueError, "k is on meta; wanted cpu, as q"),
    "k head size": ({"k": q(2, 2, 7, 5)}, ValueError, "k has head size 5; wanted 6, as q"),
    "k batch of one": ({"k": q(1, 2, 7, 6)}, ValueError, "k has batch size 1; wanted 2, as q"),
    "v batch of one": ({"v": q(1, 2, 7, 6)}, ValueError, "v has batch size 1; wanted 2, as q"),
    "v length": (
        {"v": q(2, 2, 6, 6)},
        ValueError,
        r"v has shape \[2, 2, 6, 6\]; wanted \[2, 2, 7, 6\] but for the last",
    ),
    "v heads": ({"v": q(2, 4, 7, 6)}, ValueError, "v has shape"),
    "k heads": (
        {"k": q(2, 3, 7, 6), "v": q(2, 3, 7, 6)},
        ValueError,
        "k has 3 heads; wanted a divisor of the 4 heads of q",
    ),
    "mask no tensor": ({"mask": True}, TypeError, "mask is a bool; wanted a tensor"),
    "mask integer": ({"mask": torch.ones(5, 7, dtype=torch.int)}, TypeError, "mask is torch.int32; wanted bool"),
    "mask turned": (
        {"mask": torch.ones(7, 5, dtype=torch.bool)},
        ValueError,
        r"mask has shape \[7, 5\]; wanted \[5, 7\] or",
    ),
    "mask of three dimensions": (
        {"mask": torch.ones(2, 5, 7, dtype=torch.bool)},
        ValueError,
        r"mask has shape \[2, 5, 7\]",
    ),
    "mask of one dimension": ({"mask": torch.ones(7, dtype=torch.bool)}, ValueError, r"mask has shape \[7\]"),
    "mask heads": ({"mask": torch.ones(2, 2, 5, 7, dtype=torch.bool)}, ValueError, "mask has shape"),
    "mask device": (
        {"mask": torch.ones(5, 7, dtype=torch.bool, device="meta")},
        ValueError,
        "mask is on meta; wanted cpu",
    ),
    "lengths no tensor": ({"key_lengths": [7, 7]}, TypeError, "key_lengths is a list; wanted a tensor"),
    "lengths float": (
        {"key_lengths": torch.tensor([7.0, 7.0])},
        TypeError,
        "key_lengths is torch.float32; wanted int32",
    ),
    "lengths count": ({"key_lengths": torch.tensor([7])}, ValueError, r"key_lengths has shape \[1\]; wanted \[2\]"),
    "lengths too long": (
        {"key_lengths": torch.tensor([7, 8])},
        ValueError,
        "key_lengths run from 7 to 8; wanted 0 to 7",
    ),
    "lengths negative": ({"key_lengths": torch.tensor([-1, 7])}, ValueError, "key_lengths run from -1 to 7"),
    "lengths device": ({"key_lengths": torch.tensor([7, 7], device="meta")}, ValueError, "key_lengths is on meta"),
    "dropout negative": ({"dropout": -0.1}, ValueError, "dropout is -0.1; wanted a probability"),
    "dropout one": ({"dropout": 1.0}, ValueError, "dropout is 1.0; wanted a probability"),
    "dropout nan": ({"dropout": float("nan")}, ValueError, "dropout is nan; wanted a probability"),
    "dropout text": ({"dropout": "0.1"}, ValueError, "dropout is '0.1'; wanted a probability"),
    "backend": ({"backend": "cuda"}, ValueError, "backend is 'cuda'; wanted one of auto, reference, triton"),
    "triton on a CPU": ({"backend": "triton"}, ValueError, "the fused kernel runs on CUDA tensors, and q is on cpu"),
    "triton of softmax": ({"backend": "triton", "kind": "softmax"}, ValueError, "softmax weights have no fused kernel"),
    "threshold count": (
        {"threshold": torch.zeros(3)},
        ValueError,
        r"threshold has shape \[3\]; wanted .* each of 4 heads",
    ),
    "threshold scalar tensor": ({"threshold": torch.zeros(())}, ValueError, r"threshold has shape \[\]"),
    "threshold integer": ({"threshold": torch.zeros(4).long()}, TypeError, "threshold is torch.int64"),
    "threshold device": ({"threshold": torch.zeros(4, device="meta")}, ValueError, "threshold is on meta; wanted cpu"),
    "threshold text": ({"threshold": "learned"}, TypeError, "threshold is 'learned'; wanted a finite number"),
    "threshold nan": ({"threshold": float("nan")}, TypeError, "threshold is nan; wanted a finite number"),
    "threshold of softmax": ({"threshold": 0.1, "kind": "softmax"}, ValueError, "threshold is set for softmax"),
    "threshold of top-k": ({"threshold": torch.zeros(4), "kind": "topk:2"}, ValueError, "threshold is set for topk:2"),
    "causal text": ({"causal": "no"}, TypeError, "causal is 'no'; wanted True or False"),
    "causal tensor": ({"causal": torch.tensor(True)}, TypeError, "causal is a tensor; wanted True or False"),
    "window list": ({"window": [1, 2]}, TypeError, r"window is \[1, 2\]; wanted \(left, right\)"),
    "window of three": ({"window": (1, 2, 3)}, TypeError, r"window is \(1, 2, 3\); wanted \(left, right\)"),
    "window negative": ({"window": (-1, None)}, ValueError, r"window is \(-1, None\); wanted whole numbers from 0"),
    "window fraction": ({"window": (None, 0.5)}, ValueError, r"window is \(None, 0.5\); wanted whole numbers"),
    "window bool": ({"window": (True, 1)}, ValueError, r"window is \(True, 1\); wanted whole numbers"),
    "scale text": ({"scale": "1"}, TypeError, "scale is '1'; wanted a finite number"),
    "scale -inf": ({"scale": float("-inf")}, TypeError, "scale is -inf; wanted a finite number"),
    "scale nan": ({"scale": float("nan")}, TypeError, "scale is nan; wanted a finite number"),
    "kind": ({"kind": "rela"}, ValueError, "kind is 'rela'; wanted one of softmax, .*rela-g"),
    "kind no name": ({"kind": 3}, TypeError, "kind is a int; wanted a name or a rela.Kind"),
}


@pytest.mark.parametrize("case", FUNCTIONAL)
def test_a_wrong_argument_of_attend_is_named_in_one_line(case: str):
    given, error, message = FUNCTIONAL[case]
    attend()  # the case changes one thing in a call that works
    with pytest.raises(error, match=message) as raised:
        attend(**given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "case", [case for case in FUNCTIONAL if not case.startswith(("v ", "dropout", "backend", "triton"))]
)
def test_attention_weights(case: str):
    given, error, message = FUNCTIONAL[case]
    given = {
        "q": q(),
        "k": q(2, 2, 7, 6),
        "kind": "relu",
        **{name: value for name, value in given.items() if name != "v"},
    }
    with pytest.raises(error, match=message):
        rela.attention_weights(given.pop("q"), given.pop("k"), **given)


KINDS = {
    "rela": "kind is 'rela'",
    "": "kind is ''",
    "relu:3": "kind is 'relu:3'",
    "softmax+batch": "norm is 'batch'; wanted one of none, layer",
    "entmax": "weights are 'entmax'; wanted a number from 1.0001 to 4",
    "entmax:1": "weights are 'entmax:1'; wanted a number from 1.0001 to 4",
    "entmax:1.00001": "weights are 'entmax:1.00001'; wanted a number from 1.0001 to 4",
    "entmax:4.0001": "weights are 'entmax:4.0001'; wanted a number from 1.0001 to 4",
    "entmax:1e9": "weights are 'entmax:1e9'; wanted a number from 1.0001 to 4",
    "entmax:inf": "weights are 'entmax:inf'",
    "entmax:nan": "weights are 'entmax:nan'",
    "entmax:much": "weights are 'entmax:much'",
    "topk": "weights are 'topk'; wanted a count",
    "topk:0": "weights are 'topk:0'; wanted a count",
    "topk:1.5": "weights are 'topk:1.5'; wanted a count",
}


@pytest.mark.parametrize("name", KINDS)
def test_an_unknown_kind_is_named(name: str):
    with pytest.raises(ValueError, match=KINDS[name]):
        kind_of(name)


@pytest.mark.parametrize("name", ["entmax:1.0001", "entmax:4", "topk:1", "topk:100000"])
def test_the_ends_of_the_ranges_are_in_them(name: str):
    assert kind_of(name).weights == name


def test_kind_of_no_text():
    with pytest.raises(TypeError, match="weights is a int; wanted a name"):
        rela.Kind(3)
    with pytest.raises(TypeError, match="norm is a NoneType; wanted a name"):
        rela.Kind("relu", None)


CONSTRUCTOR = {
    "heads": ({"num_heads": 5}, ValueError, "num_heads is 5; wanted a divisor of embed_dim 12"),
    "no heads": ({"num_heads": 0}, ValueError, "num_heads is 0; wanted a whole number above 0"),
    "heads truth": ({"num_heads": True}, ValueError, "num_heads is True; wanted a whole number above 0"),
    "size": ({"embed_dim": -12}, ValueError, "embed_dim is -12; wanted a whole number above 0"),
    "size no whole number": ({"embed_dim": 12.0}, ValueError, "embed_dim is 12.0; wanted a whole number"),
    "kdim": ({"kdim": 0}, ValueError, "kdim is 0; wanted a whole number above 0"),
    "key heads": ({"num_kv_heads": 2}, ValueError, "num_kv_heads is 2; wanted a divisor of num_heads 3"),
    "no key heads": ({"num_kv_heads": 0}, ValueError, "num_kv_heads is 0; wanted a whole number above 0"),
    "dropout": ({"dropout": -0.5}, ValueError, "dropout is -0.5; wanted a probability"),
    "backend": ({"backend": "gpu"}, ValueError, "backend is 'gpu'; wanted one of"),
    "kind": ({"kind": "softmaxx"}, ValueError, "kind is 'softmaxx'; wanted one of"),
    "threshold text": ({"threshold": "free"}, ValueError, "threshold is 'free'; wanted a number or \"learned\""),
    "threshold type": ({"threshold": None}, TypeError, "threshold is a NoneType"),
    "threshold truth": ({"threshold": True}, TypeError, "threshold is a bool"),
    "threshold infinite": ({"threshold": float("inf")}, TypeError, "threshold is inf; wanted a finite number"),
    "learned softmax": ({"kind": "softmax", "threshold": "learned"}, ValueError, "threshold is learned for softmax"),
    "softmax threshold": ({"kind": "softmax", "threshold": 1.0}, ValueError, "threshold is set for softmax"),
    "target": ({"target_sparsity": 1.5, "threshold": "learned"}, ValueError, "target_sparsity is 1.5; wanted a rate"),
    "target text": ({"target_sparsity": "high", "threshold": "learned"}, ValueError, "target_sparsity is 'high'"),
    "target fixed": ({"target_sparsity": 0.5}, ValueError, 'target_sparsity is set; wanted threshold="learned"'),
    "target gelu": ({"target_sparsity": 0.5, "threshold": "learned", "kind": "gelu"}, ValueError, "relu or relu2"),
}


@pytest.mark.parametrize("case", CONSTRUCTOR)
def test_constructor(case: str):
    given, error, message = CONSTRUCTOR[case]
    with pytest.raises(error, match=message):
        rela.MultiheadAttention(**{"embed_dim": C, "num_heads": H, **given})


def x(*size: int) -> torch.Tensor:
    return normal(*(size or (2, 5, C)))


FORWARD = {
    "query no tensor": ({"query": 3}, TypeError, "query is a int; wanted a tensor"),
    "query dimensions": (
        {"query": x(2, 2, 5, C)},
        ValueError,
        r"query has shape \[2, 2, 5, 12\]; wanted 2 or 3 dimensions",
    ),
    "query unbatched alone": (
        {"query": x(5, C)},
        ValueError,
        "key has shape .*; wanted 2 or 3 dimensions, as many as query",
    ),
    "query width": ({"query": x(2, 5, 11)}, ValueError, "query has size 11 in its last dimension; wanted 12"),
    "query integer": ({"query": x().long()}, TypeError, "query is torch.int64; wanted a floating point type"),
    "query type": (
        {"query": x().float()},
        TypeError,
        "query is torch.float32; wanted torch.float64, as the parameters",
    ),
    "query device": ({"query": x().to("meta")}, ValueError, "query is on meta; wanted cpu, as the parameters"),
    "query nested": (
        {"query": torch.nested.as_nested_tensor([x(3, C), x(5, C)])},
        ValueError,
        "query is a nested tensor",
    ),
    "key width": ({"key": x(2, 7, C)}, ValueError, "key has size 12 in its last dimension; wanted 8"),
    "key type": ({"key": x(2, 7, 8).float()}, TypeError, "key is torch.float32; wanted torch.float64"),
    "key device": ({"key": x(2, 7, 8).to("meta")}, ValueError, "key is on meta; wanted cpu"),
    "key and value batch": (
        {"key": x(1, 7, 8), "value": x(1, 7, 9)},
        ValueError,
        "key has batch size 1; wanted 2, as query",
    ),
    "value length": ({"value": x(2, 6, 9)}, ValueError, r"value has shape \[2, 6, 9\]; wanted as many sentences"),
    "value width": ({"value": x(2, 7, 8)}, ValueError, "value has size 8 in its last dimension; wanted 9"),
    "value missing": ({"value": None}, ValueError, "key and value were not given together"),
    "both missing": ({"key": None, "value": None}, ValueError, "key and value are missing; wanted both, or a cache"),
    "empty cache": ({"key": None, "value": None, "cache": rela.KVCache()}, ValueError, "the cache is empty"),
    "padding list": ({"key_padding_mask": [True]}, TypeError, "key_padding_mask is a list; wanted a tensor"),
    "padding turned": (
        {"key_padding_mask": torch.zeros(7, 2, dtype=torch.bool)},
        ValueError,
        r"key_padding_mask has shape \[7, 2\]; wanted \[2, 7\]",
    ),
    "padding unbatched": ({"key_padding_mask": torch.zeros(7, dtype=torch.bool)}, ValueError, r"wanted \[2, 7\]"),
    "padding of one sentence": (
        {"key_padding_mask": torch.zeros(1, 7, dtype=torch.bool)},
        ValueError,
        r"wanted \[2, 7\]",
    ),
    "padding integer": (
        {"key_padding_mask": torch.zeros(2, 7, dtype=torch.int)},
        TypeError,
        "key_padding_mask is torch.int32",
    ),
    "padding device": (
        {"key_padding_mask": torch.zeros(2, 7, dtype=torch.bool, device="meta")},
        ValueError,
        "key_padding_mask is on meta; wanted cpu",
    ),
    "mask list": ({"attn_mask": [[True]]}, TypeError, "attn_mask is a list; wanted a tensor"),
    "mask turned": (
        {"attn_mask": torch.zeros(7, 5, dtype=torch.bool)},
        ValueError,
        r"attn_mask has shape \[7, 5\]; wanted \[5, 7\] or \[6, 5, 7\]",
    ),
    "mask of one row": (
        {"attn_mask": torch.zeros(1, 7, dtype=torch.bool)},
        ValueError,
        r"attn_mask has shape \[1, 7\]",
    ),
    "mask by sentence": ({"attn_mask": torch.zeros(2, 5, 7, dtype=torch.bool)}, ValueError, "attn_mask has shape"),
    "mask integer": (
        {"attn_mask": torch.zeros(5, 7, dtype=torch.uint8)},
        TypeError,
        "attn_mask is torch.uint8; wanted bool",
    ),
    "mask device": ({"attn_mask": torch.zeros(5, 7, device="meta")}, ValueError, "attn_mask is on meta; wanted cpu"),
    "causal text": ({"is_causal": "no"}, TypeError, "is_causal is 'no'; wanted True or False"),
    "causal beside a mask": (
        {"is_causal": torch.tensor([True, False]), "attn_mask": torch.zeros(5, 7)},
        TypeError,
        "is_causal is a tensor; wanted True or False",
    ),
    "cache of tensors": ({"cache": (x(2, H, 7, 4), x(2, H, 7, 4))}, TypeError, "cache is a tuple; wanted a rela.KV"),
    "cache alone": ({"key": None, "value": None, "cache": [1]}, TypeError, "cache is a list; wanted a rela.KVCache"),
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("case", FORWARD)
def test_a_wrong_argument_of_forward_is_named_in_one_line(case: str, need_weights: bool):
    given, error, message = FORWARD[case]
    module = attention("rela-g", C, H, kdim=8, vdim=9)
    call = {"query": x(), "key": x(2, 7, 8), "value": x(2, 7, 9), "need_weights": need_weights}
    module(**call)
    with pytest.raises(error, match=message) as raised:
        module(**{**call, **given})
    assert "\n" not in str(raised.value)


def test_autocast_does_not_cast_float64():
    module = attention("rela-g", C, H, dtype=torch.float32)
    with torch.autocast("cpu"):
        module(x().float(), x().bfloat16(), x().bfloat16())
        with pytest.raises(TypeError, match=r"query is torch.float64; wanted torch.float32, as the parameters"):
            module(x(), x(), x())


def test_a_nested_tensor_without_sentences():
    nothing = torch.nested.as_nested_tensor([])
    with pytest.raises(ValueError, match="query is a nested tensor without sentences; wanted at least one"):
        attention("rela-g", C, H)(nothing, nothing, nothing, need_weights=False)


def test_a_fused_module_cannot_give_weights():
    module = attention("rela-g", C, H, backend="triton")
    with pytest.raises(ValueError, match="cannot serve need_weights=True: the fused kernel never forms the weights"):
        module(x(), x(), x())
    with pytest.raises(ValueError, match="the fused kernel runs on CUDA tensors"):
        module(x(), x(), x(), need_weights=False)


def test_remember_refuses_keys_and_values_of_other_widths():
    module = attention("rela-g", C, H, kdim=8, vdim=9)
    with pytest.raises(ValueError, match="key has size 12 in its last dimension; wanted 8"):
        module.remember(x(2, 7, C), x(2, 7, 9))
    with pytest.raises(ValueError, match="value has size 8 in its last dimension; wanted 9"):
        module.remember(x(2, 7, 8))
    with pytest.raises(ValueError, match="value has shape"):
        module.remember(x(2, 7, 8), x(2, 6, 9))


def packed(**given):
    cu = torch.tensor([0, 3, 5], dtype=torch.int32)
    call = {
        "q": q(6, 4, 8),
        "k": q(7, 2, 8),
        "v": q(7, 2, 8),
        "cu_queries": cu,
        "cu_keys": cu,
        "max_queries": 3,
        "max_keys": 3,
        "kind": "relu",
        **given,
    }
    return rela.attend_packed(**call)


def cu(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


PACKED = {
    "q dimensions": ({"q": q(1, 6, 4, 8)}, ValueError, r"q has shape \[1, 6, 4, 8\]; wanted 3 dimensions"),
    "k heads": ({"k": q(7, 3, 8), "v": q(7, 3, 8)}, ValueError, "k has 3 heads; wanted a divisor"),
    "v length": ({"v": q(6, 2, 8)}, ValueError, "v has shape"),
    "cu list": ({"cu_queries": [0, 3, 5]}, ValueError, "cu_queries is list; wanted an int32 tensor"),
    "cu int64": (
        {"cu_queries": torch.tensor([0, 3, 5])},
        ValueError,
        r"cu_queries is torch.int64 \[3\]; wanted an int32",
    ),
    "cu start": ({"cu_queries": cu(1, 3, 5)}, ValueError, r"cu_queries is \[1, 3, 5\]; wanted 0 first"),
    "cu falls": ({"cu_keys": cu(0, 3, 2)}, ValueError, r"cu_keys is \[0, 3, 2\]; wanted 0 first, never falling"),
    "cu too far": ({"cu_keys": cu(0, 3, 8)}, ValueError, "cu_keys .* at most 7 last"),
    "cu device": ({"cu_keys": cu(0, 3, 5).to("meta")}, ValueError, "cu_keys is on meta"),
    "cu counts": ({"cu_keys": cu(0, 3)}, ValueError, "cu_keys holds 1 sentences; wanted 2, as cu_queries"),
    "max queries": (
        {"max_queries": 2},
        ValueError,
        "cu_queries has a sentence of 3 tokens; wanted at most max_queries, 2",
    ),
    "max keys": ({"max_keys": 1}, ValueError, "cu_keys has a sentence of 3 tokens; wanted at most max_keys, 1"),
    "max type": ({"max_keys": 3.0}, ValueError, "max_keys is 3.0; wanted a whole number"),
    "dropout": ({"dropout": 2.0}, ValueError, "dropout is 2.0"),
    "threshold": ({"threshold": torch.zeros(2)}, ValueError, "threshold has shape"),
    "triton": ({"backend": "triton"}, ValueError, "the fused kernel runs on CUDA"),
}


@pytest.mark.parametrize("case", PACKED)
def test_attend_packed(case: str):
    given, error, message = PACKED[case]
    packed()
    with pytest.raises(error, match=message):
        packed(**given)


def test_forward_packed():
    def call(module: nn.Module, query: torch.Tensor, key: torch.Tensor) -> None:
        module.forward_packed(query, key, cu(0, 3, 5), cu(0, 3, 5), 3, 3)

    module = attention("rela-g", C, H)
    with pytest.raises(ValueError, match=r"query has shape \[1, 6, 12\]; wanted 2 dimensions"):
        call(module, x(1, 6, C), x(6, C))
    with pytest.raises(ValueError, match="key has size 11 in its last dimension; wanted 12"):
        call(module, x(6, C), x(6, 11))
    with pytest.raises(TypeError, match=r"key is torch.float32; wanted torch.float64"):
        call(module, x(6, C), x(6, C).float())
    with pytest.raises(ValueError, match="forward_packed does not serve add_bias_kv or add_zero_attn"):
        call(attention("rela-g", C, H, add_zero_attn=True), x(6, C), x(6, C))
    with pytest.raises(ValueError, match="kdim is 12 and vdim 5; wanted one size"):
        call(attention("rela-g", C, H, vdim=5), x(6, C), x(6, C))


NORMS = {
    "size": (lambda: rela.RMSNorm(0), ValueError, "size is 0; wanted a whole number"),
    "gain": (lambda: rela.RMSNorm(4, gain="ones"), ValueError, "gain is 'ones'; wanted"),
    "eps": (lambda: rela.GatedRMSNorm(4, eps=0.0), ValueError, "eps is 0.0; wanted a number above 0"),
    "eps text": (lambda: rela.RMSNorm(4, eps="1e-6"), ValueError, "eps is '1e-6'; wanted a number above 0"),
    "width": (lambda: rela.RMSNorm(4)(torch.zeros(2, 5)), ValueError, r"z has shape \[2, 5\]; wanted 4 in its last"),
    "one gain for all": (lambda: rela.LayerNorm(1)(torch.zeros(2, 5)), ValueError, "wanted 1 in its last dimension"),
    "integer": (lambda: rela.RMSNorm(4)(torch.zeros(2, 4).int()), TypeError, "z is torch.int32"),
    "name": (lambda: rela.attention.norms.make_norm("batch", 4), ValueError, "norm is 'batch'; wanted none, rms"),
    "penalty target": (lambda: rela.sparsity_penalty(q(), 1.5), ValueError, "target sparsity is 1.5; wanted a rate"),
    "penalty shape": (lambda: rela.sparsity_penalty(q(3, 4), 0.5), ValueError, r"scores have shape \[3, 4\]"),
    "rate shape": (lambda: rela.sparsity_rate(q(3, 4)), ValueError, r"weights have shape \[3, 4\]; wanted"),
    "rate of a list": (lambda: rela.sparsity_rate([0.0]), TypeError, "weights are a list; wanted a tensor"),
    "null rate of a list": (lambda: rela.null_rate([[0.0]]), TypeError, "weights are a list; wanted a tensor"),
    "penalty of a list": (lambda: rela.sparsity_penalty([0.0], 0.5), TypeError, "scores are a list; wanted a tensor"),
    "penalties of no module": (lambda: rela.collect_sparsity_penalty(3), TypeError, "module is a int; wanted a torch"),
    "null rate shape": (lambda: rela.null_rate(q(3, 4)), ValueError, r"weights have shape \[3, 4\]; wanted"),
}


@pytest.mark.parametrize("case", NORMS)
def test_norms_and_rates(case: str):
    call, error, message = NORMS[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "given",
    [
        *({"mask": torch.ones(shape, dtype=torch.bool)} for shape in ((5, 7), (1, 7), (2, 4, 5, 7), (1, 1, 1, 1))),
        *({"window": window} for window in ((0, 0), (None, 0), (3, None), (None, None))),
    ],
)
def test_what_is_right_is_taken(given):
    assert attend(**given).shape == (2, 4, 5, 6)


def test_sentences_may_fill_all_tokens():
    assert packed(cu_queries=cu(0, 3, 6), cu_keys=cu(0, 3, 7), max_keys=4).isfinite().all()


def test_a_sparse_tensor_is_refused_by_name():
    q = torch.ones(1, 2, 3, 4)
    with pytest.raises(TypeError, match=r"k has layout torch.sparse_coo; wanted a dense tensor"):
        rela.attend(q, q.to_sparse(), q)
