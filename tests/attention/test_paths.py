"""Which path serves which call, without a GPU: sizes, types and options alone decide."""

from __future__ import annotations

import pytest
import torch

from rela.attention.paths import Call, path_of, why_not_decoded, why_not_fused

STEP = Call("relu", queries=1, keys=4096)
LONG = Call("relu", "cpu", torch.float32, queries=128, keys=128)

PATHS = {
    "one query": (STEP, "decode"),
    "one query of grouped heads": (STEP._replace(heads=32, key_heads=8), "decode"),
    "a few queries, causal": (STEP._replace(queries=4, causal=True), "decode"),
    "lengths and starts": (STEP._replace(lengths=True, starts=True), "decode"),
    "a window to the left": (STEP._replace(left=100), "decode"),
    "any fused type": (STEP._replace(weights="leaky_relu", dtype=torch.float32, size=200, value_size=200), "decode"),
    "a gradient": (STEP._replace(gradient=True), "fused"),
    "dropout": (STEP._replace(dropout=0.1), "fused"),
    "a mask": (STEP._replace(mask=torch.bool), "fused"),
    "a bias": (STEP._replace(mask=torch.bfloat16), "fused"),
    "a window to the right": (STEP._replace(queries=2, right=3), "fused"),
    "many queries": (STEP._replace(queries=65), "fused"),
    "many heads to a key head": (STEP._replace(queries=9, heads=8, key_heads=1), "fused"),
    "few keys": (STEP._replace(keys=255), "fused"),
    "keys enough for one query": (STEP._replace(keys=256), "decode"),
    "less than eight keys to a query": (STEP._replace(queries=40, keys=319), "fused"),
    "eight keys to a query": (STEP._replace(queries=40, keys=320), "decode"),
    "a forward pass": (STEP._replace(queries=4096, causal=True), "fused"),
    "sparsemax": (Call("sparsemax", queries=9, keys=9, gradient=True, dropout=0.1, lengths=True, left=4), "simplex"),
    "entmax of a mask": (Call("entmax:1.3", queries=1, keys=4096, mask=torch.bool), "simplex"),
    "entmax of a bias": (Call("entmax15", queries=9, keys=9, mask=torch.float32), "reference"),
    "entmax beyond sparsemax": (Call("entmax:2.5", queries=9, keys=9), "reference"),
    "entmax near softmax": (Call("entmax:1.01", queries=9, keys=9), "reference"),
    "no kernel for it": (STEP._replace(weights="gelu"), "reference"),
    "on a CPU": (STEP._replace(device="cpu"), "reference"),
    "on a CPU, long": (LONG, "blocks"),
    "on a CPU, long, with all that limits": (
        LONG._replace(causal=True, mask=torch.bool, lengths=True, starts=True, left=9, gradient=True, dropout=0.1),
        "blocks",
    ),
    "on a CPU, long, with a bias": (LONG._replace(mask=torch.float32), "blocks"),
    "on a CPU, long, gelu with a bias": (LONG._replace(weights="gelu", mask=torch.float32), "reference"),
    "on a CPU, not long enough": (LONG._replace(keys=127), "reference"),
    "on a CPU, 16 bits, not long enough": (LONG._replace(dtype=torch.bfloat16, queries=511, keys=512), "reference"),
    "on a CPU, 16 bits, long": (LONG._replace(dtype=torch.bfloat16, queries=512, keys=512), "blocks"),
    "without Triton": (STEP._replace(has_triton=False), "reference"),
    "asked for": (STEP._replace(backend="reference"), "reference"),
    "softmax": (Call("softmax", queries=9, keys=9), "softmax"),
    "softmax with limits": (Call("softmax", queries=9, keys=5, causal=True, lengths=True, left=2), "softmax"),
    "softmax of a float mask": (Call("softmax", queries=9, keys=9, mask=torch.float32), "softmax"),
    "softmax over no keys": (Call("softmax", queries=9, keys=0), "reference"),
    "softmax on a CPU": (Call("softmax", "cpu", queries=9, keys=9, causal=True), "softmax"),
    "softmax with limits on a CPU": (Call("softmax", "cpu", queries=9, keys=9, lengths=True), "reference"),
    "softmax of one query on a CPU": (Call("softmax", "cpu", queries=1, keys=9), "reference"),
}


@pytest.mark.parametrize("case", PATHS)
def test_each_call_takes_its_path(case: str):
    call, path = PATHS[case]
    assert path_of(call) == path


@pytest.mark.parametrize("case", PATHS)
def test_triton_is_the_fused_path_or_the_reason(case: str):
    call, path = PATHS[case]
    call = call._replace(backend="triton")
    if path in ("decode", "fused", "simplex") or case == "asked for":
        assert path_of(call) in ("decode", "fused", "simplex")
    else:
        reason = why_not_fused(call)
        with pytest.raises(ValueError, match="cannot serve this call") as error:
            path_of(call)
        assert reason is not None
        assert reason in str(error.value)


def test_each_reason_names_what_came():
    assert "has 257" in why_not_fused(STEP._replace(size=257, value_size=257))
    assert "v has 257" in why_not_fused(STEP._replace(value_size=257))
    assert why_not_fused(STEP._replace(value_size=32)) is None
    assert "torch.float64" in why_not_fused(STEP._replace(dtype=torch.float64))
    assert "torch.float64" in why_not_fused(STEP._replace(mask=torch.float64))
    assert why_not_fused(STEP) is None
    assert why_not_decoded(STEP) is None
