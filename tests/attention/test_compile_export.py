"""torch.compile without graph breaks, torch.export, autocast: the module under the tools people put on top of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import rela
from rela.attention.kinds import kind_of
from tests.attention.attention_cases import KINDS, WEIGHTS, attention, normal

C, H = 12, 3
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
NORMED = {kind_of(kind).weights for kind in KINDS if kind_of(kind).norm != "none"}
# Weights without a norm are left to the campaign where another kind has the same weights and a norm.
COMPILED = [pytest.param(kind, marks=[pytest.mark.campaign] if kind in NORMED else []) for kind in KINDS]


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def outcome(run, module: nn.Module, *inputs: torch.Tensor, **call):
    """Output, and the gradients of inputs and parameters."""
    inputs = tuple(x.detach().clone().requires_grad_() for x in inputs)
    module.zero_grad()
    out = run(*inputs, **call)[0]
    out.square().sum().backward()
    return out, [x.grad for x in inputs], {name: p.grad for name, p in module.named_parameters()}


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", COMPILED)
def test_compile_without_a_graph_break(kind: str):
    """Forward and backward, masked; aot_eager traces all that inductor would.

    Where no weights are wanted, a module calls `attend`: test_functional_form_compiles has all weights.
    """
    module = attention(kind, C, H)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x, y = normal(2, 5, C), normal(2, 7, C, seed=1)
    hidden = torch.tensor([[False] * 7, [True] * 7])
    calls = [{"key_padding_mask": hidden}, *([{"need_weights": False}] if kind in ("softmax", "rela-g") else [])]
    for call in calls:
        assert_close(outcome(compiled, module, x, y, y, **call), outcome(module, module, x, y, y, **call), **CLOSE)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_module_compiled_by_inductor_computes_the_same():
    module = attention("rela-g", C, H, dtype=torch.float32)
    x = normal(2, 5, C, dtype=torch.float32)
    compiled = torch.compile(module, fullgraph=True)
    call = {"is_causal": True, "need_weights": False}
    plain = outcome(module, module, x, x, x, **call)
    assert_close(outcome(compiled, module, x, x, x, **call), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_the_training_path():
    """Packed sentences, dropout, a learned threshold and the penalty it leaves behind."""
    module = attention("rela-g", C, H, threshold="learned", target_sparsity=0.8)
    x = normal(9, C)
    cu = torch.tensor([0, 4, 7], dtype=torch.int32)

    def step(x: torch.Tensor, cu: torch.Tensor) -> torch.Tensor:
        out = module.forward_packed(x, x, cu, cu, 4, 4, causal=True)
        return out.square().sum() + rela.collect_sparsity_penalty(module)

    expected = step(x, cu)
    expected_gradient = torch.autograd.grad(expected, module.threshold)
    loss = torch.compile(step, fullgraph=True, backend="aot_eager")(x, cu)
    assert_close(loss, expected, **CLOSE)
    assert_close(torch.autograd.grad(loss, module.threshold), expected_gradient, **CLOSE)


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_with_dynamic_lengths():
    """One graph serves every length, not a compilation each."""
    module = attention("rela-g", C, H)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, fullgraph=True, backend=counter, dynamic=True)
    graphs = []
    for length in (5, 6, 9, 13):
        x = normal(2, length, C, seed=length)
        assert_close(compiled(x, x, x, is_causal=True)[0], module(x, x, x, is_causal=True)[0], **CLOSE)
        graphs.append(counter.frame_count)
    assert graphs[-1] == graphs[0] > 0


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("weights", ["softmax", "topk:2"])
def test_weights_without_a_kernel_compile_with_dynamic_sizes(weights: str):
    """Whose reason against the kernels is made while a compiler looks on, with every number a symbol."""

    def call(q, k):
        return rela.attend(q, k, k, kind=weights, causal=True)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (5, 1, 7):
        q, k = normal(2, 4, length, 6, seed=length), normal(2, 2, length, 6)
        assert_close(compiled(q, k), call(q, k), **CLOSE)


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_packed_with_dynamic_lengths():
    """The same over packed sentences, where the dropout rate, too, is a number that a compiler may leave open."""
    module = attention("rela-g", C, H, dropout=0.1).train()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module.forward_packed, fullgraph=True, backend=counter, dynamic=True)
    graphs = []
    for length in (5, 6, 9):
        x, cu = normal(length, C, seed=length), torch.tensor([0, 2, length], dtype=torch.int32)
        found = []
        for function in (module.forward_packed, compiled):
            torch.manual_seed(length)
            found.append(function(x, x, cu, cu, 8, 8))
        assert_close(*found, **CLOSE)
        graphs.append(counter.frame_count)
    assert graphs[-1] == graphs[0] > 0


@pytest.mark.parametrize("kind", COMPILED)
def test_an_exported_module_computes_the_same(kind: str):
    module = attention(kind, C, H).eval()
    x, y = normal(2, 5, C), normal(2, 7, C, seed=1)
    hidden = torch.tensor([[False] * 7, [False] * 3 + [True] * 4])
    program = torch.export.export(module, (x, y, y), {"key_padding_mask": hidden, "need_weights": False})
    other = ~hidden
    other[0, 0] = False
    for mask in (hidden, other):
        call = {"key_padding_mask": mask, "need_weights": False}
        assert_close(program.module()(x, y, y, **call)[0], module(x, y, y, **call)[0], **CLOSE)


@pytest.mark.parametrize("kind", ["softmax", "rela-g"])
def test_export_with_dynamic_sizes(kind: str):
    module = attention(kind, C, H).eval()
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2)
    program = torch.export.export(
        module,
        (normal(3, 5, C),) * 3,
        {"is_causal": True},
        dynamic_shapes={name: {0: batch, 1: length} for name in ("query", "key", "value")} | {"is_causal": None},
    )
    x = normal(4, 11, C, seed=2)
    assert_close(program.module()(x, x, x, is_causal=True), module(x, x, x, is_causal=True), **CLOSE)


class SelfAttention(nn.Module):
    """The output alone: a trace cannot return None for the weights."""

    def __init__(self, attention: nn.Module, need_weights: bool) -> None:
        super().__init__()
        self.attention, self.need_weights = attention, need_weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, is_causal=True, need_weights=self.need_weights)[0]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_jit_trace(kind: str, need_weights: bool):
    module = SelfAttention(attention(kind, C, H), need_weights).eval()
    traced = torch.jit.trace(module, normal(2, 5, C))
    other = normal(2, 5, C, seed=1)
    assert_close(traced(other), module(other), **CLOSE)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", [*KINDS, "topk:8"])
def test_a_trace_serves_other_lengths(kind: str):
    """More queries than keys and fewer; more keys than a top-k takes and fewer."""

    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention(kind, C, H).eval()

        def forward(self, x: torch.Tensor, y: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            call = {"is_causal": True, "need_weights": False}
            return self.attention(x, y, y, **call)[0], self.attention(x, y, y, attn_mask=hidden, **call)[0]

    def inputs(queries: int, keys: int) -> tuple[torch.Tensor, ...]:
        hidden = torch.arange(keys) % 3 == torch.arange(queries)[:, None] % 3
        return normal(2, queries, C), normal(2, keys, C, seed=1), hidden

    module = Cross()
    for first, other in (((5, 5), (5, 11)), ((5, 7), (9, 3))):
        traced = torch.jit.trace(module, inputs(*first))
        assert_close(traced(*inputs(*other)), module(*inputs(*other)), **CLOSE)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("weights", WEIGHTS)
def test_functional_form_compiles(weights: str):
    """Forward and backward, causal, with a sentence that has no key."""
    q, k, v = (normal(2, 4 if n == 0 else 2, 5, 3, seed=n) for n in range(3))
    lengths = torch.tensor([5, 0])

    def call(q, k, v, lengths):
        return rela.attend(q, k, v, kind=weights, causal=True, key_lengths=lengths)

    outcomes = []
    for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        out = function(*leaves, lengths)
        outcomes.append((out, torch.autograd.grad(out.square().sum(), leaves)))
    assert_close(*outcomes, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_stays_near_float32(kind: str, dtype: torch.dtype):
    """Parameters and inputs stay float32, products run in half: near the float32 answer, finite float32 gradients."""
    module = attention(kind, C, H, dtype=torch.float32)
    x = normal(2, 5, C, dtype=torch.float32)
    mask = normal(5, 5, seed=3, dtype=torch.float32)
    mask[3] = float("-inf")
    for need_weights in (True, False):
        module.zero_grad()
        call = {"attn_mask": mask, "need_weights": need_weights}
        with torch.autocast("cpu", dtype):
            out, _ = module(x, x, x, **call)
        assert out.dtype == dtype
        out.float().square().sum().backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad.dtype == torch.float32, name
            assert parameter.grad.isfinite().all(), name
        # A dozen products and sums in a row, each rounded: a generous multiple of one rounding of numbers near one.
        bound = 16 * torch.finfo(dtype).eps
        exact = module(x, x, x, **call)[0]
        assert (out.float() - exact).abs().max() <= bound * (1 + exact.abs().max())


def test_autocast_takes_half_inputs_beside_float32_parameters():
    module = attention("rela-g", C, H, dtype=torch.float32)
    x = normal(2, 5, C, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"query is torch.bfloat16; wanted torch.float32, as the parameters"):
        module(x, x, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x, x, x)[0].dtype == torch.bfloat16


@pytest.mark.skipif(
    torch.__version__ < (2, 12), reason="export of torch 2.11 makes guards of strides that it cannot simplify"
)
@pytest.mark.parametrize("kind", ["relu", "softmax"])
def test_export_of_grouped_heads_over_any_length(kind: str):
    """Four query heads over two key heads, with a mask: as in most Hugging Face decoders."""

    class Attend(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return rela.attend(*(x.transpose(1, 2) for x in (q, k, v)), kind=kind, mask=mask)

    def inputs(length: int) -> tuple[torch.Tensor, ...]:
        q, k = normal(2, length, 4, 6), normal(2, length, 2, 6)
        return q, k, k + 1.0, torch.ones(2, 1, length, length, dtype=torch.bool).tril()

    t = torch.export.Dim("t", min=2, max=32)
    sizes = ({1: t}, {1: t}, {1: t}, {2: t, 3: t})
    program = torch.export.export(Attend(), inputs(7), dynamic_shapes=sizes, strict=False).module()
    assert_close(program(*inputs(11)), Attend()(*inputs(11)))


@pytest.mark.usefixtures("fresh_compiler")
def test_a_step_with_a_cache_compiles_without_a_graph_break():
    torch.manual_seed(0)
    module = rela.MultiheadAttention(24, 3, kind="rela-g", batch_first=True).eval()

    def step(x: torch.Tensor, cache: rela.KVCache) -> torch.Tensor:
        return module(x, x, x, cache=cache, is_causal=True, need_weights=False)[0]

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    cache, other = rela.KVCache(), rela.KVCache()
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 1, 24)
            torch.testing.assert_close(compiled(x, cache), step(x, other))
    assert cache.length == 3
