"""The judge of the kernels: equations in plain PyTorch, exact in float64, and the error plain PyTorch makes itself."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rela.attention.weights import weights_of as equation_of
from rela.kernels.attention import activations
from rela.packing import Packing

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {name: equation_of(name) for name in activations.ACTIVATIONS}


def weights_of(
    q: Tensor,
    k: Tensor,
    threshold: Tensor | None = None,
    *,
    scale: float,
    activation: str = "relu",
    seen: Tensor | None = None,
) -> Tensor:
    """act(q kᵀ · scale − θ), [B, H, T, S], zero where `seen` is False; key heads are repeated to match."""
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale
    if threshold is not None:
        scores = scores - threshold[:, None, None]
    weights = ACTIVATIONS[activation](scores)
    return weights if seen is None else weights.masked_fill(~seen, 0.0)


def reference(
    q: Tensor, k: Tensor, v: Tensor, threshold: Tensor | None = None, *, kept: Tensor | None = None, **options: object
) -> Tensor:
    """The context; `kept` multiplies the weights, as dropout does."""
    weights = weights_of(q, k, threshold, **options)  # type: ignore[arg-type]
    if kept is not None:
        weights = weights * kept.to(weights.dtype)
    return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


def seen_by(
    q: Tensor,
    k: Tensor,
    *,
    causal: bool = False,
    key_lengths: Tensor | None = None,
    key_starts: Tensor | None = None,
    window: tuple[int | None, int | None] = (None, None),
    mask: Tensor | None = None,
) -> Tensor:
    """Which key each query may look at, [B, H, T, S]."""
    (B, H, T, _), S = q.shape, k.shape[2]
    t, s = torch.arange(T, device=q.device)[:, None], torch.arange(S, device=q.device)
    seen = torch.ones(B, H, T, S, dtype=torch.bool, device=q.device)
    if causal:
        seen = seen & (s <= t + S - T)
    if key_lengths is not None:
        seen = seen & (s < key_lengths[:, None, None, None])
    if key_starts is not None:
        seen = seen & (s >= key_starts[:, None, None, None])
    left, right = window
    if left is not None:
        seen = seen & (s >= t + S - T - left)
    if right is not None:
        seen = seen & (s <= t + S - T + right)
    return seen if mask is None else seen & mask


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def run(function: Callable[..., Tensor], inputs: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The output of `function` on the inputs in `dtype`, then one gradient for each input."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
    out = function(*leaves)
    d_out = draw(*out.shape, dtype=inputs[0].dtype, seed=99).to(dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def assert_as_exact_as(
    fused: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    *inputs: Tensor,
    slack: float = 2.0,
    given: Sequence[Tensor] | None = None,
) -> None:
    """`fused` errs at most `slack` times as much as `plain` does in the same precision, in output and gradients.

    It is given the inputs, or what is `given` in their place: the same with NaN where nobody looks.

    Two units in the last place of the largest number, in the float32 of the accumulators, are free: θ's gradient has
    only a few entries, and the error plain PyTorch makes in them may be small by luck.
    """
    dtype = inputs[0].dtype
    exact = run(plain, inputs, torch.float64)
    names = ["output", *(f"gradient of input {i}" for i in range(len(inputs)))]
    found = run(fused, inputs if given is None else given, dtype)
    for name, got, same, true in zip(names, found, run(plain, inputs, dtype), exact, strict=True):
        assert got.shape == true.shape, f"{name}: shape {list(got.shape)}, wanted {list(true.shape)}"
        if not true.numel():
            continue
        assert got.isfinite().all(), f"{name} is not finite"
        units = 2 * torch.finfo(torch.float32).eps * true.abs().max()
        allowed = slack * (same.double() - true).abs().max() + units + 1e-6
        error = (got.double() - true).abs().max()
        assert error <= allowed, f"{name}: error {error:.2e}, allowed {allowed:.2e}"


def recorded(step: Callable[[], tuple[Tensor, ...]]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
    """A step as a CUDA graph, after one call on another stream that compiles its kernels, and the tensors it writes."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    return graph, captured


def packing_of(lengths: list[int], longest: int | None = None) -> Packing:
    """Sequences of these lengths; `longest` may say another number than the truth."""
    cu_seqlens = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).to(torch.int32)
    return Packing(cu_seqlens, max(lengths) if longest is None else longest)
