"""A launch that is repeated gives what the first one gave, whatever pointers and numbers it is given."""

from random import Random
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, KernelParam, create_function_from_signature

import rela
from rela.attention.dispatch import attend_normalised
from rela.attention.kinds import kind_of
from rela.attention.plans import Options
from rela.kernels import launch
from rela.kernels.attention.decode import decode_kernel
from rela.kernels.attention.forward import forward_kernel
from rela.kernels.attention.functional import relu_attention
from rela.kernels.layers.row_blocks import sums_kernel
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


@pytest.fixture
def by_triton(monkeypatch):
    """The grids of launches that Triton was asked for, and those of variants that were launched again."""
    asked, again = [], []
    launcher = SimpleNamespace(
        global_scratch_size=0, profile_scratch_size=0, launch_cooperative_grid=False, launch_pdl=False
    )
    launcher.launch = lambda *arguments: again.append(arguments)
    compiled = SimpleNamespace(run=launcher, function=77, packed_metadata=())

    class Kernel(Recorder):
        params = tuple(SimpleNamespace(name=name, is_constexpr=name == "BLOCK") for name in Recorder.arg_names)

        def __getitem__(self, grid):
            def start(*arguments, **constants):
                asked.append((grid, arguments, constants))
                return compiled

            return start

    monkeypatch.setattr(launch, "VARIANTS", {})
    monkeypatch.setattr(launch, "REUSES", True)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 1000, raising=False)
    return Kernel(), asked, again


def test_a_launch_for_other_sizes_takes_the_variant_that_was_found(by_triton):
    kernel, asked, again = by_triton
    x = torch.zeros(64)
    launch.Launch(kernel, (3,), {"n": 37, "BLOCK": 16})(x)
    launch.Launch(kernel, (5,), {"n": 41, "BLOCK": 16})(x)
    assert len(asked) == len(again) == 1
    assert again[0][:3] == (5, 1, 1), "with its own grid"
    assert again[0][-3:] == (x.data_ptr(), 41, 16), "and numbers"
    others = [
        (x, {"n": 48, "BLOCK": 16}),  # a multiple of 16
        (x, {"n": 1, "BLOCK": 16}),
        (x, {"n": 2**31 + 1, "BLOCK": 16}),
        (x, {"n": 37, "BLOCK": 32}),
        (x, {"n": 37, "BLOCK": 16, "num_warps": 2}),
        (x.double(), {"n": 37, "BLOCK": 16}),
        (x[1:], {"n": 37, "BLOCK": 16}),  # at an address that is no multiple of 16
    ]
    for number, (y, constants) in enumerate(others, start=2):
        launch.Launch(kernel, (3,), constants)(y)
        assert len(asked) == number, f"{constants} is another variant"


def test_a_profiler_that_watches_launches_sees_them_all(by_triton, monkeypatch):
    kernel, asked, again = by_triton
    x = torch.zeros(64)
    launch.Launch(kernel, (3,), {"n": 37, "BLOCK": 16})(x)
    monkeypatch.setattr(launch, "has_hooks", lambda: True)
    launch.Launch(kernel, (3,), {"n": 41, "BLOCK": 16})(x)
    assert len(asked) == 2
    assert not again


def arguments_for(kernel: JITFunction, random: Random) -> tuple[list, dict]:
    """Arguments of every kind in any place, as far as Triton takes them, and constants."""
    x = torch.zeros(64)

    def anything() -> object:
        kinds = (x, x[random.choice((1, 4)) :], x.bfloat16(), x.to(torch.int32), None, 0.5, True, False)
        numbers = [
            random.choice((0, 1, 2, 15, 16, 48, 1024, -1, -16, 2**31 - 1, 2**31, 2**40, 2**63)) for _ in range(3)
        ]
        return random.choice((*kinds, *numbers, *numbers, tuple(numbers)))

    def value_of(parameter: KernelParam) -> object:
        return random.choice((8, 16, 24, True)) if parameter.is_constexpr else anything()

    count = random.randrange(1, len(kernel.params) + 1)
    named = {parameter.name: value_of(parameter) for parameter in kernel.params[count:]}
    return [value_of(parameter) for parameter in kernel.params[:count]], {**named, "num_warps": random.choice((4, 8))}


def test_what_counts_as_one_variant_is_one_for_triton():
    """Triton's own binder tells types, what is special of each value, and options: it must say no more than ours."""
    backend = make_backend(GPUTarget("cuda", 90, 32))
    random, shared = Random(1), 0
    for interpreted in (forward_kernel, decode_kernel, sums_kernel):
        kernel = JITFunction(interpreted.fn, **getattr(interpreted, "kwargs", {}))
        bind = create_function_from_signature(kernel.signature, kernel.params, backend)
        variants: dict[tuple, tuple] = {}
        for number in range(3000):
            # calls differ from one of every twenty in one argument, as those for other sizes do
            positional, constants = arguments_for(kernel, random)
            if number % 20 == 0:
                base = positional, constants
            else:
                place = random.randrange(min(len(positional), len(base[0])))
                name = random.choice(list(base[1]))
                change = {name: constants.get(name, base[1][name])}
                positional = [*base[0][:place], positional[place], *base[0][place + 1 :]]
                constants = {**base[1], **change} if random.random() < 0.5 else base[1]
            _, specialization, options = bind(*positional, **constants)
            ours = launch.variant_of(kernel, tuple(positional), constants, {})
            triton = tuple(specialization), str(options)
            shared += ours in variants
            assert variants.setdefault(ours, triton) == triton, (positional, constants)
    assert shared > 1000, "else nothing was compared"


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
def test_growing_keys_share_variants_on_a_gpu(monkeypatch):
    """As in generation: every step has one key more, and takes the kernels of the steps before it."""
    monkeypatch.setattr(launch, "REUSES", True)
    monkeypatch.setattr(launch, "VARIANTS", {})
    rela.attention.plans.PLANS.clear()
    module = rela.MultiheadAttention(512, 8, kind="rela-g", batch_first=True, device="cuda", dtype=torch.bfloat16)
    q, k, v = (draw(2, 8, 700, 64, dtype=torch.bfloat16, seed=n) for n in range(3))
    with torch.no_grad():
        for S in [*range(90, 130), *range(600, 700)]:
            given = q[:, :, S - 1 : S], k[:, :, :S].contiguous(), v[:, :, :S].contiguous()
            rows = attend_normalised(*given, Options(kind_of("rela-g")), module.norm)
            exact = (given[0].double() @ given[1].double().mT / 8).relu() @ given[2].double()
            wanted = module.norm.double()(exact.transpose(1, 2).flatten(2))
            module.norm.bfloat16()
            assert (rows.double() - wanted).abs().max() <= 0.02 * wanted.abs().max(), f"{S} keys"
    assert len(launch.VARIANTS) <= 40


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
