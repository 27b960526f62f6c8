"""An attention kind is two independent choices: how scores become weights, and the norm on the merged heads."""

from __future__ import annotations

from dataclasses import dataclass

DISTRIBUTIONS = ("softmax", "sparsemax", "entmax15", "entmax", "topk")
"""Weights whose rows sum to one: they ignore a constant added to the scores, so a threshold means nothing to them."""
RECTIFIERS = ("relu", "relu2", "gelu", "leaky_relu")
"""Weights that act on each score alone."""
ZERO_BELOW = ("relu", "relu2")
"""Those that are zero for every score below the threshold, which can therefore be moved towards a wanted sparsity."""
WEIGHTS = DISTRIBUTIONS + RECTIFIERS
"""Every name of weights there is; `rela.attention.weights` has the function of each."""
NORMS = ("none", "layer", "rms", "rms-i", "gated-rms", "gated-layer")
"""The names that `norm` of a kind may have."""

# The argument behind the colon in "entmax:1.3" and "topk:8".
PARAMETERS = {
    "entmax": (float, "a number from 1.0001 to 4, such as entmax:1.3"),
    "topk": (int, "a count, such as topk:8"),
}
# Float32 cannot tell α-entmax from softmax (1) below the first; above the second its slope, the weight to the power
# 2 - α, leaves the range of float16 and then of float32.
ALPHAS = (1.0001, 4.0)


def split_parameter(weights: str) -> tuple[str, float | int | None]:
    """("entmax", 1.3) of "entmax:1.3"; the parameter is None where there is none."""
    name, colon, text = weights.partition(":")
    if not colon:
        return name, None
    if name not in PARAMETERS:
        return weights, None
    read, wanted = PARAMETERS[name]
    try:
        value = read(text)
    except ValueError:
        raise ValueError(f"weights are {weights!r}; wanted {wanted}") from None
    smallest, largest = ALPHAS if name == "entmax" else (1, float("inf"))
    if not smallest <= value <= largest:
        raise ValueError(f"weights are {weights!r}; wanted {wanted}")
    return name, value


@dataclass(frozen=True)
class Kind:
    """What an attention is made of: `weights` from scores, `norm` on the concatenated heads."""

    weights: str
    """How scores become weights, such as "softmax", "relu" or "topk:8"."""
    norm: str = "none"
    """The norm on the concatenated heads: one of `rela.NORMS`."""

    def __post_init__(self) -> None:
        for field in ("weights", "norm"):
            if not isinstance(getattr(self, field), str):
                raise TypeError(f"{field} is a {type(getattr(self, field)).__name__}; wanted a name")
        name, parameter = split_parameter(self.weights)
        if name not in WEIGHTS:
            raise ValueError(f"weights are {self.weights!r}; wanted one of {', '.join(WEIGHTS)}")
        if name in PARAMETERS and parameter is None:
            raise ValueError(f"weights are {self.weights!r}; wanted {PARAMETERS[name][1]}")
        if self.norm not in NORMS:
            raise ValueError(f"norm is {self.norm!r}; wanted one of {', '.join(NORMS)}")

    @property
    def is_distribution(self) -> bool:
        """Whether each row of weights sums to one, so that no query attends to nothing."""
        return split_parameter(self.weights)[0] in DISTRIBUTIONS


PRESETS = {
    "softmax": Kind("softmax"),  # row 1
    "sparsemax": Kind("sparsemax"),  # row 2
    "entmax15": Kind("entmax15"),  # row 3
    "relu": Kind("relu"),  # row 4, which the paper could not train
    "relu-rms": Kind("relu", "rms"),  # row 5
    "rela-i": Kind("relu", "rms-i"),  # row 6
    "rela-g": Kind("relu", "gated-rms"),  # row 7
    "rela-g-layernorm": Kind("relu", "gated-layer"),  # row 8
    "rela-g-gelu": Kind("gelu", "gated-rms"),  # row 9
    "rela-g-leaky": Kind("leaky_relu", "gated-rms"),  # row 10
    "relu2-g": Kind("relu2", "gated-rms"),
}
"""Kinds by name: those of the paper's Table 1, row by row, then ours."""


def kind_of(kind: str | Kind) -> Kind:
    """The kind behind a preset's name, a weights' name such as "topk:8", or "weights+norm" such as "relu2+rms"."""
    if isinstance(kind, Kind):
        return kind
    if not isinstance(kind, str):
        raise TypeError(f"kind is a {type(kind).__name__}; wanted a name or a rela.Kind")
    if kind in PRESETS:
        return PRESETS[kind]
    weights, _, norm = kind.partition("+")
    if split_parameter(weights)[0] not in WEIGHTS:
        known = ", ".join([*PRESETS, "entmax:α", "topk:k"])
        raise ValueError(f"kind is {kind!r}; wanted one of {known}, or weights+norm such as relu2+rms")
    return Kind(weights, norm or "none")


def name_of(kind: Kind) -> str:
    """A name that `kind_of` knows a kind by: its preset's, or its parts."""
    parts = kind.weights if kind.norm == "none" else f"{kind.weights}+{kind.norm}"
    return next((name for name, preset in PRESETS.items() if preset == kind), parts)


def kind_without_norm(kind: str | Kind) -> Kind:
    """The kind behind a name, where the heads stay apart: a norm, which acts on merged heads, is an error."""
    found = kind_of(kind)
    if found.norm != "none":
        raise ValueError(
            f"kind is {kind!r}, whose norm {found.norm} acts on merged heads; "
            f"wanted {found.weights!r}, or rela.MultiheadAttention, which has the norm"
        )
    return found
