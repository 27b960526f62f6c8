"""torch.compile sees the operators: one graph, forward and backward, and the same numbers."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

pytest.importorskip("triton")

from rela.attention import norms, packed
from rela.config import ModelConfig
from rela.model import layers, residual
from rela.model.layers import DecoderLayer, EncoderLayer
from rela.packing import Packing
from tests.kernels.attention.attention_cases import SCALE, qkv
from tests.kernels.exactness import DEVICE, draw
from tests.kernels.packed_layer import layer_and_inputs

pytestmark = pytest.mark.usefixtures("memory_as_it_is")


def outcome(run, layer, x, cu, seed):
    layer.zero_grad()
    out = run(x, cu, seed)
    out.square().sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in layer.parameters())]


def assert_compiles(backend):
    layer, x, cu, seed = layer_and_inputs()
    wanted = outcome(layer, layer, x, cu, seed)
    got = outcome(torch.compile(layer, fullgraph=True, backend=backend), layer, x, cu, seed)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * other.abs().max().item())


def test_a_layer_is_one_graph():
    assert_compiles("aot_eager")


@pytest.fixture
def kernels_everywhere(memory_as_it_is, monkeypatch):
    """A model's layers take their kernels without a GPU, too: in the interpreter."""
    for module, name in ((norms, "triton_serves"), (layers, "triton_serves_half"), (residual, "triton_serves")):
        monkeypatch.setattr(module, name, lambda x: True)
    monkeypatch.setattr(packed, "why_not_fused", lambda *_, **__: None)


@pytest.mark.usefixtures("kernels_everywhere")
def test_the_layers_of_a_model_are_one_graph_whatever_the_lengths():
    torch.manual_seed(0)
    config = ModelConfig(vocabulary_size=50, width=24, heads=2, feed_forward=36, dropout=0.1, attention_dropout=0.1)
    both = torch.nn.ModuleList([EncoderLayer(config), DecoderLayer(config)]).to(DEVICE, torch.float16)

    def run(x, y, cu):
        sentences = Packing(cu, 9)
        return both[1](y, sentences, both[0](x, sentences), sentences)

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, fullgraph=True, backend=counter, dynamic=True)
    graphs = []
    for lengths in ([3, 4], [5, 2, 7], [9, 9]):
        x, y = (draw(sum(lengths), 24, dtype=torch.float16, seed=seed).requires_grad_() for seed in (1, 2))
        assert layers.triton_serves_half(x)
        cu = torch.tensor([0, *lengths], device=DEVICE).cumsum(0, dtype=torch.int32)
        outcomes = []
        for function in (run, compiled):
            torch.manual_seed(1)
            out = function(x, y, cu)
            leaves = (x, y, *both.parameters())
            outcomes.append((out, *torch.autograd.grad(out, leaves, draw(*out.shape, dtype=torch.float16, seed=3))))
        for one, other in zip(*outcomes, strict=True):  # a gradient is a sum of several that are rounded to 11 bits
            torch.testing.assert_close(one, other, rtol=0.0, atol=2**-8 * other.abs().max().item())
        graphs.append(counter.frame_count)
    assert graphs[-1] == graphs[0] > 0


@pytest.mark.gpu
def test_a_layer_is_one_graph_for_inductor():
    assert_compiles("inductor")


def test_the_operators_keep_their_contract():
    q, k, v = (x.requires_grad_() for x in qkv(H=4, Hk=2, T=20, S=24))
    threshold = torch.zeros(4, device=DEVICE, requires_grad=True)
    lengths = torch.tensor([24, 10], device=DEVICE)
    starts, seed = torch.tensor([0, 4], device=DEVICE), torch.tensor(3, device=DEVICE)
    mask = torch.ones(2, 1, 20, 24, dtype=torch.bool, device=DEVICE)
    operators = torch.ops.rela
    tail = (SCALE, "relu", True)
    torch.library.opcheck(
        operators.relu_attention.default,
        (q, k, v, threshold, lengths, mask, None, None, 20, 24, seed, *tail, 0.1, starts, 9, None, True),
    )
    torch.library.opcheck(
        operators.relu_attention_statistics.default,
        (q, k, v, threshold, lengths, mask, *tail, starts, 9, None, True),
    )
    q, k, v, threshold = (x.detach() for x in (q, k, v, threshold))
    torch.library.opcheck(
        operators.relu_attention_backward.default,
        (
            q,
            q,
            k,
            v,
            threshold,
            lengths,
            mask.float(),
            None,
            None,
            20,
            24,
            seed,
            *tail,
            0.1,
            starts,
            9,
            None,
            True,
            True,
        ),
    )
    few = q[:, :, :2], k, v, threshold, lengths, starts
    torch.library.opcheck(operators.relu_attention_decode.default, (*few, 9, *tail))


def test_the_operators_of_the_simplex_keep_their_contract():
    q, k, v = (x.requires_grad_() for x in qkv(B=1, H=4, Hk=2, T=9, S=12, D=16))
    limits = torch.tensor([10], device=DEVICE), torch.ones(1, 1, 9, 12, dtype=torch.bool, device=DEVICE)
    starts, seed = torch.tensor([4], device=DEVICE), torch.tensor(3, device=DEVICE)
    options = *limits, None, None, 9, 12, seed, SCALE, "entmax15", True, 0.1, starts, 9, None
    # that a compiler takes them, tests/attention/test_dispatch.py shows
    checks = {"test_utils": ("test_schema", "test_autograd_registration", "test_faketensor")}
    torch.library.opcheck(torch.ops.rela.simplex_attention.default, (q, k, v, *options), **checks)
    q, k, v = (x.detach() for x in (q, k, v))
    levels = torch.zeros(2, 1, 4, 9, device=DEVICE)
    torch.library.opcheck(torch.ops.rela.simplex_attention_backward.default, (q, levels, q, k, v, *options), **checks)
