"""What changes by plan from step to step: the learning rate, and the centring of keys."""

import math

from rela.config import TrainConfig


def learning_rate(step: int, width: int, settings: TrainConfig) -> float:
    """The learning rate of a step, counted from 1, of a model of this width."""
    if settings.schedule == "cosine":
        return cosine(step, width, settings.warmup, settings.steps, settings.learning_rate)
    rate = inverse_square_root(step, width, settings.warmup, settings.learning_rate)
    return rate * cooled(step, settings.steps, settings.cooldown)


def inverse_square_root(step: int, width: int, warmup: int, factor: float = 1.0) -> float:
    """factor · width^-0.5 · min(step^-0.5, step · warmup^-1.5), of Vaswani et al. (2017); the first step is 1."""
    return float(factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5))


def cosine(step: int, width: int, warmup: int, steps: int, factor: float = 1.0) -> float:
    """The same until `warmup`, then half a cosine from there down to zero, which comes one step after the last."""
    peak = inverse_square_root(min(step, warmup), width, warmup, factor)
    return peak * 0.5 * (1.0 + math.cos(math.pi * max(step - warmup, 0) / (steps + 1 - warmup)))


def cooled(step: int, steps: int, cooldown: int) -> float:
    """The share of the rate left at a step: 1 until the last `cooldown` of `steps`, then a line down to 1/cooldown."""
    return min(1.0, (steps - step + 1) / cooldown) if cooldown else 1.0


def centring_share(step: int, steps: int) -> float:
    """The share of the mean key taken off in step `step` = 1, 2, …: falls linearly from 1, and is 0 after `steps`."""
    return max(0.0, 1.0 - (step - 1) / steps) if steps else 0.0
