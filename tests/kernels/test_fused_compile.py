"""torch.compile sees the operators: one graph, forward and backward, and the same numbers."""

import pytest
import torch

pytest.importorskip("triton")

from packed_layer import layer_and_inputs

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


@pytest.mark.gpu
def test_a_layer_is_one_graph_for_inductor():
    assert_compiles("inductor")
