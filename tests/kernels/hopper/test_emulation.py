"""The Hopper kernels' own code, run in plain Python: right numbers, and no warp that waits for ever."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from rela.attention import paths
from rela.kernels import launch
from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.hopper import backward as hopper_backward
from rela.kernels.hopper import (
    backward_kernel,
    backward_loads,
    backward_products,
    dropout,
    forward_kernel,
    forward_loads,
    forward_products,
    mask,
    tile_operations,
    wide_backward_kernel,
    wide_backward_products,
)
from rela.kernels.hopper import dispatch as hopper
from rela.kernels.hopper import forward as hopper_forward
from rela.kernels.hopper.tables import addressable_bias, intervals, mask_words
from tests.kernels.attention.combinations import STRUCTURES, Structure, assert_structure
from tests.kernels.exactness import reference, seen_by
from tests.kernels.hopper.emulation import Emulation, Value

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the kernels themselves are tested")
PROGRAMS = 3  # persistent ones, fewer than tiles
SCALE = 0.25
MODULES = [forward_kernel, forward_loads, forward_products, backward_kernel, backward_loads, backward_products]
MODULES += [tile_operations, mask, dropout, wide_backward_kernel, wide_backward_products]


@dataclass(frozen=True)
class Case:
    D: int
    dtype: torch.dtype
    causal: bool = False
    limits: tuple[str, ...] = ()


CASES = [
    Case(64, torch.bfloat16, True),
    Case(64, torch.float16, False, ("bias",)),
    Case(128, torch.bfloat16, True, ("bias", "lengths", "threshold")),
    Case(64, torch.bfloat16, False, ("mask", "threshold")),
    Case(128, torch.float16, True, ("mask", "lengths")),
    Case(64, torch.float16, False, ("lengths", "starts", "window")),
    Case(128, torch.float16, True, ("starts", "window", "threshold")),
    Case(64, torch.bfloat16, True, ("starts",)),
    Case(96, torch.bfloat16, True, ("lengths", "threshold")),
    Case(80, torch.float16, False, ("bias",)),
    Case(40, torch.bfloat16, False, ("mask",)),
    Case(160, torch.bfloat16, True),
    Case(136, torch.float16, False, ("lengths", "starts", "threshold")),
    Case(192, torch.bfloat16, True, ("mask", "lengths")),
    Case(192, torch.bfloat16, False, ("starts", "window")),
    Case(200, torch.float16, True, ("lengths", "threshold")),
    Case(256, torch.bfloat16, False, ("mask", "starts")),
    Case(256, torch.float16, True, ("starts", "window", "threshold")),
]


def on_a_grid(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiples of 1/4 from −1 to 1: products are exact, so no score near zero changes its sign."""
    return (torch.randint(-4, 5, shape) / 4).to(dtype)


def problem_of(case: Case) -> Problem:
    """Two batch elements, two query heads over one key head, odd lengths; NaN outside lengths and starts."""
    torch.manual_seed(0)
    B, H, dtype = 2, 2, case.dtype
    T, S = (130, 140) if "mask" in case.limits else (150, 200)  # words of a mask take the interpreter its time
    q = on_a_grid(B, H, T, case.D, dtype=dtype)
    k, v = (on_a_grid(B, 1, S, case.D, dtype=dtype) for _ in range(2))
    lengths = starts = limit = None
    if "lengths" in case.limits:
        lengths = torch.tensor([130, 77])
        behind = (torch.arange(S) >= lengths[:, None])[:, None, :, None]
        k, v = (x.masked_fill(behind, torch.nan) for x in (k, v))
    if "starts" in case.limits:
        starts = torch.tensor([3, 110])
        before = (torch.arange(S) < starts[:, None])[:, None, :, None]
        k, v = (x.masked_fill(before, torch.nan) for x in (k, v))
    if "mask" in case.limits:
        limit = torch.rand(1, 1, T, S) < 0.6
    if "bias" in case.limits:
        limit = on_a_grid(1, H, T, S, dtype=torch.bfloat16).masked_fill(torch.rand(1, H, T, S) < 0.2, -torch.inf)
    threshold = on_a_grid(H, dtype=dtype) if "threshold" in case.limits else None
    left, right = (30, 20) if "window" in case.limits else (None, None)
    return Problem(
        q, k, v, threshold, lengths, limit, None, None, None, SCALE, "relu", case.causal, 0.0, starts, left, right
    )


def emulated(problem: Problem, d_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Context, dQ, dK, dV and dθ by the code of the Hopper kernels."""
    (B, H, T, D), (_, Hk, S, _) = problem.q.shape, problem.k.shape
    emulation = Emulation(MODULES)
    out = problem.like_queries(problem.q.dtype)

    def tables(of_keys: bool) -> tuple[torch.Tensor | None, ...]:
        return intervals(problem, of_keys), None, mask_words(problem, of_keys), addressable_bias(problem)

    launch = hopper_forward.launch(problem, out, hopper.forward_tiles(problem), None, *tables(of_keys=False))
    emulation.run(hopper_forward.forward_kernel, PROGRAMS, *launch)
    dq, dk, dv = torch.zeros(B, T, H, D).transpose(1, 2), problem.like_keys(), problem.like_keys()
    tiles = hopper.gradient_tiles(problem)
    d_theta = torch.zeros(B, H, hopper_backward.theta_parts(problem, tiles))
    gradients = d_out, dq, dk, dv, d_theta, tiles
    launch = hopper_backward.launch(problem, *gradients, *tables(of_keys=True))
    programs = ceil_div(S, hopper_backward.keys_of_program(tiles)) * Hk * B
    emulation.run(hopper_backward.kernel_of(tiles), programs, *launch)
    return out, dq, dk, dv, d_theta.sum((0, 2)) * problem.threshold_gradient_scale


def exact(problem: Problem, d_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same by the equation, in float64."""
    q, k, v = (x.double().nan_to_num(0.0).requires_grad_() for x in (problem.q, problem.k, problem.v))
    theta = torch.zeros(q.shape[1]) if problem.threshold is None else problem.threshold
    theta = theta.double().requires_grad_()
    limits = {"key_lengths": problem.key_lengths, "key_starts": problem.key_starts}
    seen = seen_by(q, k, causal=problem.causal, window=(problem.left, problem.right), **limits)
    if problem.mask is None or not problem.biased:
        if problem.mask is not None:
            seen = seen & problem.mask
        out = reference(q, k, v, theta, scale=SCALE, seen=seen)
    else:
        hidden = problem.mask == -torch.inf
        scores = q @ k.mT * SCALE + problem.mask.double().masked_fill(hidden, 0.0) - theta[:, None, None]
        out = (scores.relu() * (seen & ~hidden)) @ v
    return out, *torch.autograd.grad(out, (q, k, v, theta), d_out.double())


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([str(case.D), *case.limits]))
def test_the_code_of_the_kernels_gives_what_the_equation_gives(case: Case):
    problem = problem_of(case)
    d_out = on_a_grid(*problem.q.shape, dtype=case.dtype)
    names = "context", "dQ", "dK", "dV", "dθ"
    for name, got, true in zip(names, emulated(problem, d_out), exact(problem, d_out), strict=True):
        if name == "dθ" and problem.threshold is None:
            continue
        error, allowed = (got.double() - true).abs().max(), torch.finfo(case.dtype).eps * true.abs().max()
        assert error <= allowed, f"{name}: error {error:.2e}, allowed {allowed:.2e}"


def test_a_kernel_that_waits_for_ever_is_an_error(monkeypatch):
    """That the threads of the emulation do wait: without the loads nobody may go on."""
    monkeypatch.setattr("tests.kernels.hopper.emulation.LONGEST_WAIT", 0.2)
    problem = problem_of(CASES[0])
    emulation = Emulation(MODULES)
    kernel = emulation.functions[f"{forward_kernel.__name__}.forward_kernel"]
    kernel.__globals__["load_partition"] = lambda *_: None
    out = problem.like_queries(problem.q.dtype)
    launch = hopper_forward.launch(problem, out, hopper.forward_tiles(problem))
    with pytest.raises(TimeoutError, match="waits for ever"):
        emulation.run(hopper_forward.forward_kernel, 1, *launch)


@pytest.mark.campaign
@pytest.mark.parametrize("structure", [each for each in STRUCTURES if each.on_hopper], ids=str)
def test_public_calls_on_the_emulated_kernels(structure: Structure, calls: list[str], monkeypatch: pytest.MonkeyPatch):
    """All between `rela.attend` and a launch, too: plans, tables and their order; in float16, the interpreter's."""
    true, launched = paths.why_not_fused, launch.Launch.__call__

    def emulated_launch(self: launch.Launch, *arguments: object) -> None:
        if not self.tiles:
            return launched(self, *arguments)
        return Emulation(MODULES).run(
            self.kernel, self.grid[0], launch.described(arguments, self.tiles), self.constants
        )

    monkeypatch.setattr(paths, "why_not_fused", lambda call: true(call._replace(device="cuda")))
    monkeypatch.setattr(hopper, "available", lambda device: True)
    monkeypatch.setattr(launch.Launch, "__call__", emulated_launch)
    served = assert_structure(replace(structure, dtype=torch.float16), range(2))
    assert calls == [name for who in served if who == "hopper" for name in ("forward", "backward")]


@pytest.mark.parametrize(("n_t", "B", "H", "heads"), [(5, 3, 7, 4), (16, 1, 9, 9), (2, 4, 8, 8), (1, 2, 3, 2)])
def test_causal_tiles_are_computed_once_in_balanced_groups_of_heads(n_t: int, B: int, H: int, heads: int):
    emulation = Emulation(MODULES)
    emulation.programs = P = 4
    place, share = (emulation.functions[f"{forward_loads.__name__}.{name}"] for name in ("place", "share"))
    work: list[list[tuple[int, ...]]] = []
    for emulation.program in range(P):
        rounds = range(share(Value(n_t * H * B)))
        work.append([tuple(map(int, place(i, *map(Value, (n_t, B, H, heads)), True, False))) for i in rounds])
    assert sorted(itertools.chain(*work)) == sorted(itertools.product(range(n_t), range(H), range(B)))
    lengths = [sum(i_t + 1 for i_t, _, _ in tiles) for tiles in work]
    assert max(lengths) - min(lengths) <= n_t
    for tiles in work:
        groups = [(i_b * H + i_h) // heads for _, i_h, i_b in tiles]
        assert groups == sorted(groups)


def test_heads_of_a_group_have_two_tiles_for_each_program(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hopper_forward, "processors", lambda device: 132)
    for B, H, T, heads in ((128, 8, 256, 128), (16, 8, 2048, 16), (1, 8, 1024, 8), (1, 16, 65536, 1)):
        q = torch.empty(B, H, T, 128, dtype=torch.bfloat16, device="meta")
        problem = Problem(q, q, q, None, None, None, None, None, None, SCALE, "relu", True, 0.0)
        assert hopper_forward.heads_together(problem, hopper.forward_tiles(problem)) == heads
