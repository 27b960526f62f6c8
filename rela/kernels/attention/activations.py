"""The activations that the kernels compute: one record each. Their Triton code is in scores.py, under the same names.

This module imports no Triton, so that it can be asked what is fused where Triton is not installed.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Activation:
    """What the kernels know of an activation f beside its code, `activate` and `differentiate` in scores.py.

    The defaults are right for every f: the kernels then scale the scores, and set the weight and the gradient of a
    hidden key to zero themselves, whatever f and its slope are at zero.
    """

    degree: int | None = None
    """p where f(a · s) = aᵖ · f(s) for every a > 0: the scale may then be applied to the output, not to every score."""
    rectifies: bool = False
    """f(s) and f'(s) are exactly 0 for every s ≤ 0: a score of 0 then hides a key, and empty tiles may be skipped."""
    on_hopper: bool = False
    """The kernels in rela/kernels/hopper compute it too."""


ACTIVATIONS = {
    "relu": Activation(degree=1, rectifies=True, on_hopper=True),
    "relu2": Activation(degree=2, rectifies=True),
    "leaky_relu": Activation(degree=1),
}

SIMPLEX = {"sparsemax": 2.0, "entmax15": 1.5}
"""α of the weights that project a row of scores on the simplex; "entmax:α" names any other."""
ALPHAS = (1.05, 2.0)
"""What the kernels of simplex.py take: below, powers lose digits of float32; above, their search need not converge."""
SERVED = ", ".join([*ACTIVATIONS, *SIMPLEX, f"entmax:α with α from {ALPHAS[0]} to {ALPHAS[1]:.0f}"])
"""All of these, for messages; written here because torch.compile(dynamic=True) cannot format a number."""


def alpha_of(weights: str) -> float | None:
    """α of "sparsemax", "entmax15" or "entmax:1.3" if there is a kernel for it, or None."""
    name, _, number = weights.partition(":")
    alpha = float(number) if name == "entmax" and number else SIMPLEX.get(weights, 0.0)
    return alpha if ALPHAS[0] <= alpha <= ALPHAS[1] else None
