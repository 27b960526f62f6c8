"""Checks of a dataclass's fields: each raises a ValueError that says what came and what was wanted."""

from __future__ import annotations

import math


def require(condition: bool, name: str, came: object, wanted: str) -> None:
    """Raise a ValueError that names the field, what came and what was wanted."""
    if not condition:
        raise ValueError(f"{name} is {came!r}; wanted {wanted}")


def require_at_least(config: object, smallest: int, *names: str) -> None:
    """Raise unless each named field of `config` is `smallest` or more."""
    for name in names:
        value = getattr(config, name)
        require(value >= smallest, name, value, f"at least {smallest}")


def require_between(config: object, smallest: float, largest: float, *names: str) -> None:
    """Raise unless each named field of `config` is in [smallest, largest]."""
    for name in names:
        value = getattr(config, name)
        require(smallest <= value <= largest, name, value, f"{smallest:,} to {largest:,}")


def require_at_most(config: object, largest: int, *names: str) -> None:
    """Raise unless each named field of `config` is `largest` or less."""
    for name in names:
        value = getattr(config, name)
        require(value <= largest, name, value, f"at most {largest:,}")


def require_positive(config: object, *names: str) -> None:
    """Raise unless each named field of `config` is a finite number above 0."""
    for name in names:
        value = getattr(config, name)
        require(0 < value < math.inf, name, value, "a finite number above 0")


def require_fraction(config: object, *names: str) -> None:
    """Raise unless each named field of `config` is in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        require(0 <= value < 1, name, value, "in [0, 1)")


def require_choice(config: object, name: str, *choices: str) -> None:
    """Raise unless the named field of `config` is one of `choices`."""
    value = getattr(config, name)
    quoted = [f'"{choice}"' for choice in choices]
    require(value in choices, name, value, f"{', '.join(quoted[:-1])} or {quoted[-1]}")
