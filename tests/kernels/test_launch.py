"""A launch that is repeated gives what the first one gave, whatever pointers and numbers it is given."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")
import rela
from rela.kernels import launch
from rela.kernels.attention.functional import relu_attention
from tests.kernels.attention.attention_cases import SCALE, qkv
from tests.kernels.exactness import draw


class Recorder:
    """A kernel that keeps what it is launched with."""

    arg_names = ("x", "n", "BLOCK")

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.launches.append((grid, arguments, constants))


def test_a_launch_hands_on_its_arguments_and_constants():
    kernel = Recorder()
    start = launch.Launch(kernel, (3,), {"n": 5, "BLOCK": 16, "num_warps": 2})
    tensors = torch.zeros(1), torch.zeros(2)
    for x in tensors:
        start(x)
    assert [(grid, constants) for grid, _, constants in kernel.launches] == [
        ((3,), {"n": 5, "BLOCK": 16, "num_warps": 2})
    ] * 2
    assert all(given == (x,) for (_, given, _), x in zip(kernel.launches, tensors, strict=True))


class Placed:
    """A tensor's place, without the tensor."""

    def __init__(self, device: str):
        self.device = torch.device(device)

    def get_device(self) -> int:
        return self.device.index


def test_a_kernel_runs_where_its_tensors_are(monkeypatch):
    """Triton asks for the current device; with a model on another GPU that is the wrong one."""
    entered = []

    class Device:
        def __init__(self, index: int):
            self.index = index

        def __enter__(self):
            entered.append(self.index)

        def __exit__(self, *problem):
            entered.append("out")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", Device)
    for place, wanted in (("cpu", []), ("cuda:0", []), ("cuda:1", [1, "out"])):
        entered.clear()
        launch.Launch(Recorder(), (1,), {})(Placed(place))
        assert entered == wanted
    again = launch.Launch(Recorder(), (1,), {})
    again.repeat = lambda device, arguments: entered.append(("again", device))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    for place, wanted in (("cuda:0", [("again", 0)]), ("cuda:1", [1, ("again", 1), "out"])):
        entered.clear()
        again(Placed(place))
        assert entered == wanted


def test_a_kernel_whose_arguments_are_not_all_known_is_not_repeated():
    assert launch.repeated(Recorder(), None, (1,), ("x",), {"n": 5}, {}) is None


def test_a_repeated_launch_is_given_addresses_and_the_constants_in_the_order_of_the_kernel(monkeypatch):
    """Tensors as addresses, what is None as None, numbers and constants as they are, on the stream of the device."""
    given = []
    launcher = SimpleNamespace(
        global_scratch_size=0, profile_scratch_size=0, launch_cooperative_grid=False, launch_pdl=False
    )
    launcher.launch = lambda *arguments: given.append(arguments)
    compiled = SimpleNamespace(run=launcher, function=77, packed_metadata=(4, 1, 0))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 1000 + device, raising=False)
    kernel = SimpleNamespace(arg_names=("x", "y", "n", "BLOCK"))
    x, y = torch.zeros(3), torch.ones(3)
    again = launch.repeated(kernel, compiled, (5,), (x, None, 2), {"BLOCK": 16, "num_warps": 4}, {})
    again(3, (y, None, 8))
    head = (5, 1, 1, 1003, 77, False, False, None, None, (4, 1, 0), None, None, None)
    assert given == [(*head, y.data_ptr(), None, 8, 16)]


def test_memos_tell_layouts_apart():
    """The same call on other strides, other types and a shorter sequence: each has its own plan."""
    q, k, v = qkv(T=20, S=20)
    for change in (lambda x: x, lambda x: x[:, :, :7], lambda x: x.half(), lambda x: x.mT.contiguous().mT):
        one = [change(x) for x in (q, k, v)]
        again = relu_attention(*one, scale=SCALE)
        exact = (one[0].double() @ one[1].double().mT * SCALE).relu() @ one[2].double()
        assert (again.double() - exact).abs().max() <= 40 * torch.finfo(one[0].dtype).eps * exact.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 4, 64, 64), (1, 8, 1024, 64), (2, 2, 256, 128), (1, 2, 33, 40)])
@pytest.mark.parametrize("causal", [False, True])
def test_repeated_launches_on_a_gpu(shape, causal, monkeypatch):
    """Five calls with new tensors each, forward and backward, with and without repeating launches."""
    outcomes = []
    for reuses in (False, True):
        monkeypatch.setattr(launch, "REUSES", reuses)
        rela.attention.plans.PLANS.clear()
        found = []
        for seed in range(5):
            inputs = [draw(*shape, dtype=torch.bfloat16, seed=3 * seed + n).requires_grad_() for n in range(3)]
            torch.use_deterministic_algorithms(True, warn_only=True)
            out = rela.attend(*inputs, causal=causal)
            found += [out, *torch.autograd.grad(out, inputs, draw(*shape, dtype=torch.bfloat16, seed=77))]
        outcomes.append(found)
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
def test_repeated_launches_follow_the_stream_and_graphs(monkeypatch):
    monkeypatch.setattr(launch, "REUSES", True)
    rela.attention.plans.PLANS.clear()
    q, k, v = (draw(1, 4, 2048, 64, dtype=torch.bfloat16, seed=n) for n in range(3))
    with torch.no_grad():
        wanted = [rela.attend(q, k, v), rela.attend(q[:, :, -1:], k, v)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = [rela.attend(q, k, v), rela.attend(q[:, :, -1:], k, v)]
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = [rela.attend(q, k, v), rela.attend(q[:, :, -1:], k, v)]
        graph.replay()
    for one, two, three in zip(wanted, found, captured, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
