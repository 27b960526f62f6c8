"""Random calls of `rela.attend` with all options, against the equation in float64: for a GPU, and for the emulation.

A kernel is compiled for a structure, and many random cases share it: sizes, strides, lengths, masks of every shape.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import torch

import rela
from rela.attention.dispatch import dropout_seed
from rela.kernels.attention.functional import relu_attention
from tests.kernels.exactness import DEVICE, assert_as_exact_as


def on_a_grid(*shape: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Multiples of 1/4 from −1 to 1: products and their sums are exact, so no score near zero changes its sign."""
    return (torch.randint(-4, 5, shape, generator=generator) / 4).to(dtype).to(DEVICE)


@dataclass(frozen=True)
class Structure:
    """What kernels are compiled for: type, head sizes, group, what hides keys or changes weights; and who serves it."""

    dtype: torch.dtype
    D: int
    group: int
    options: str = ""
    on_hopper: bool = True
    Dv: int | None = None
    kind: str = "relu"
    ways: tuple[str, ...] = ("heads first", "heads last", "projection")
    mask_type: torch.dtype | None = None
    """The type of a float mask, where it is not that of the queries."""

    def __str__(self) -> str:
        return "-".join([str(self.dtype).removeprefix("torch."), str(self.D), str(self.group), *self.options.split()])


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
STRUCTURES = [
    Structure(BF16, 64, 1),
    Structure(BF16, 64, 2, "bias causal threshold", mask_type=FP16),
    Structure(FP16, 128, 1, "bias lengths"),
    Structure(BF16, 128, 2, "bias starts window dropout", mask_type=FP16),
    Structure(BF16, 64, 1, "bias causal lengths starts threshold"),
    Structure(FP16, 64, 1, "bias dropout threshold"),
    Structure(FP16, 64, 4, "mask lengths causal"),
    Structure(BF16, 128, 1, "mask starts threshold dropout"),
    Structure(BF16, 64, 1, "lengths starts window causal"),
    Structure(FP16, 128, 2, "window threshold causal"),
    Structure(BF16, 64, 1, "dropout lengths"),
    Structure(BF16, 64, 1, "bias lengths", Dv=128),
    Structure(FP32, 64, 2, "mask lengths threshold causal", on_hopper=False),
    Structure(BF16, 80, 1, "bias starts window"),
    Structure(FP16, 96, 2, "dropout lengths causal"),
    Structure(BF16, 256, 1, "mask window dropout"),
    Structure(BF16, 32, 1, "starts causal threshold", on_hopper=False, kind="relu2"),
    Structure(FP32, 48, 1, "bias dropout", on_hopper=False),
    Structure(BF16, 64, 2, "bias lengths", on_hopper=False, ways=("unaligned",), mask_type=FP16),
    Structure(BF16, 160, 4, "starts threshold", Dv=64),
    Structure(FP16, 192, 2, "lengths starts window causal"),
    Structure(BF16, 136, 1, "bias lengths", on_hopper=False),
]


def laid_out(x: torch.Tensor, how: str) -> torch.Tensor:
    """x [B, H, N, D] as it may lie in memory; "unaligned" are rows of one number more than they have."""
    if how == "heads last":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "projection":  # the second of three parts of a row
        row = x.transpose(1, 2)
        return torch.cat([row, row, row], dim=2).chunk(3, dim=2)[1].transpose(1, 2)
    return torch.nn.functional.pad(x, (0, 1))[..., :-1] if how == "unaligned" else x


def poisoned(x: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """x [B, H, N, D], with the same strides, and NaN in the rows `outside` [B, N]."""
    copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    return copy.masked_fill_(outside[:, None, :, None], torch.nan)


def kept_of(seed: torch.Tensor | int, shape: tuple[int, int, int, int], rate: float) -> torch.Tensor:
    """The factors of dropout [B, H, T, S]: weights of one, and columns of the identity as values, 64 at a time."""
    B, H, T, S = shape
    q, k = torch.ones(B, H, T, 64, device=DEVICE), torch.ones(B, H, S, 64, device=DEVICE)
    columns = torch.nn.functional.pad(torch.eye(S, device=DEVICE), (0, -S % 64)).split(64, 1)
    options = {"scale": 1 / 64, "dropout": rate, "seed": seed}
    parts = [relu_attention(q, k, part.contiguous().expand(B, H, S, 64), **options) for part in columns]
    return torch.cat(parts, -1)[..., :S]


def random_mask(choose: random.Random, shape: tuple[int, int, int, int], dtype: torch.dtype | None) -> torch.Tensor:
    """A boolean mask, or a float one of multiples of 1/4 and −inf; for all batch elements or heads, or not."""
    B, H, T, S = shape
    generator = torch.Generator().manual_seed(choose.randrange(2**31))
    own = choose.choice([shape, shape, (1, H, T, S), (B, 1, T, S), (1, 1, T, S), (1, H, 1, S), (B, 1, T, 1)])
    seen = (torch.rand(own, generator=generator) < 0.7).to(DEVICE)
    mask = seen if dtype is None else on_a_grid(*own, dtype=dtype, generator=generator).masked_fill(~seen, -torch.inf)
    how = choose.choice(["plain", "plain", "expanded", "heads last"])
    if how == "heads last":
        return mask.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    return mask.expand(shape) if how == "expanded" else mask


def random_limits(
    choose: random.Random, structure: Structure, B: int, S: int
) -> tuple[dict[str, object], torch.Tensor]:
    """The kind and what hides keys beside a mask, and which keys [B, S] no query may see whatever it says."""
    options, limits = structure.options.split(), {"kind": structure.kind, "causal": "causal" in structure.options}
    outside = torch.zeros(B, S, dtype=torch.bool, device=DEVICE)
    key, whole = torch.arange(S, device=DEVICE), torch.int64 if structure.group > 1 else torch.int32
    if "lengths" in options:
        lengths = torch.tensor([choose.randint(0, S) for _ in range(B)], dtype=whole, device=DEVICE)
        limits["key_lengths"], outside = lengths, outside | (key >= lengths[:, None])
    if "starts" in options:
        starts = [choose.choice([choose.randint(0, 60), choose.randint(0, S)]) for _ in range(B)]
        limits["key_starts"] = torch.tensor(starts, dtype=whole, device=DEVICE)
        outside = outside | (key < limits["key_starts"][:, None])
    if "window" in options:
        limits["window"] = (choose.choice([0, 50, 130]), choose.choice([None, 30]))
    return limits, outside


def assert_right(structure: Structure, case: int) -> str:
    """One random call of a structure against the equation; gives "hopper" or "plain", whose it is."""
    choose, generator = random.Random(5000 + case), torch.Generator().manual_seed(case)
    options, dtype, D = structure.options.split(), structure.dtype, structure.D
    B, Hk, group = choose.randint(1, 3), choose.randint(1, 2), structure.group
    H, Dv, rate = Hk * group, structure.Dv or D, 0.5 if "dropout" in options else 0.0  # whose factor rounds nothing
    T, S = choose.choice([130, 200, 300, 384]), choose.choice([140, 256, 300, 140 if rate else 500])
    limits, outside = random_limits(choose, structure, B, S)
    inputs = [
        laid_out(on_a_grid(*shape, dtype=dtype, generator=generator), choose.choice(structure.ways))
        for shape in ((B, H, T, D), (B, Hk, S, D), (B, Hk, S, Dv))
    ]
    given = [inputs[0], *(poisoned(x, outside) for x in inputs[1:])]
    names: list[str] = []
    if "threshold" in options:
        names.append("threshold")
        given.append(on_a_grid(H, dtype=dtype, generator=generator))
    if "bias" in options:
        names.append("mask")
        given.append(random_mask(choose, (B, H, T, S), dtype))
    if "mask" in options:
        limits["mask"] = random_mask(choose, (B, H, T, S), None)
    kept = None
    if rate:
        torch.manual_seed(case)
        kept = kept_of(dropout_seed(inputs[0], rate), (B, H, T, S), rate)
    scale, masks = choose.choice([0.25, 0.5]), []

    def fused(q, k, v, *more):
        torch.manual_seed(case)
        given = {**limits, **dict(zip(names, more, strict=True)), "dropout": rate, "scale": scale}
        if structure.mask_type is not None:
            given["mask"] = given["mask"].to(structure.mask_type)
        masks.append(given.get("mask"))
        return rela.attend(q, k, v, backend="triton", **given)

    def plain(q, k, v, *more):
        weights = rela.attention_weights(q, k, scale=scale, **limits, **dict(zip(names, more, strict=True)))
        if kept is not None:
            weights = weights * kept.to(weights.dtype)
        return weights @ v.repeat_interleave(group, dim=1)

    assert_as_exact_as(fused, plain, *inputs, *given[3:], given=given)
    whole = "bias" not in options or (masks[0].shape[2:] == (T, S) and 0 not in masks[0].stride()[2:])
    return "hopper" if structure.on_hopper and whole else "plain"


def assert_structure(structure: Structure, cases: Iterable[int]) -> list[str]:
    """Random calls of a structure against the equation; whose each is, "hopper" or "plain"."""
    served = []
    for case in cases:
        try:
            served.append(assert_right(structure, crc32(str(structure).encode()) + case))
        except AssertionError as wrong:
            raise AssertionError(f"case {case}: {wrong}") from wrong
    return served
