"""Spaces: sets of things too large to list, which can still be counted, indexed and sampled.

A grammar is written as unions and products of spaces. Its size is then a sum of products, exact however large it
is, and every member has a number, so that both "how many" and "which one" have an answer.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import prod
from random import Random
from typing import Any, Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
K = TypeVar("K")


class Space(Protocol[T_co]):
    """A countable set: `size` members, `space[index]` for each of them, and `sample` for a random one."""

    size: int

    def __getitem__(self, index: int) -> T_co: ...

    def sample(self, random: Random) -> T_co: ...


class Items(Generic[T]):
    """The members of a list, all equally likely."""

    def __init__(self, items: Iterable[T]):
        self.items = tuple(items)
        self.size = len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]

    def sample(self, random: Random) -> T:
        return self.items[int(random.random() * self.size)]


class Union(Generic[T]):
    """The members of several spaces that share none; a weight says how often each space is drawn from."""

    def __init__(self, spaces: Sequence[Space[T]], weights: Sequence[float] | None = None):
        kept = [
            (space, weight) for space, weight in zip(spaces, weights or [1.0] * len(spaces), strict=True) if space.size
        ]
        self.spaces = tuple(space for space, _ in kept)
        self.starts = tuple(accumulate((space.size for space in self.spaces), initial=0))
        self.size = self.starts[-1]
        total = sum(weight for _, weight in kept)
        self._thresholds = tuple(accumulate(weight / total for _, weight in kept))[:-1]

    def __getitem__(self, index: int) -> T:
        which = bisect_right(self.starts, index) - 1
        return self.spaces[which][index - self.starts[which]]

    def sample(self, random: Random) -> T:
        return self.spaces[bisect_right(self._thresholds, random.random())].sample(random)


class Product(Generic[T]):
    """What `make` makes of one member from each space."""

    def __init__(self, make: Callable[..., T], *spaces: Space[Any]):
        self.make = make
        self.spaces = spaces
        self.size = prod(space.size for space in spaces)

    def __getitem__(self, index: int) -> T:
        chosen = []
        for space in reversed(self.spaces):
            index, remainder = divmod(index, space.size)
            chosen.append(space[remainder])
        return self.make(*reversed(chosen))

    def sample(self, random: Random) -> T:
        return self.make(*[space.sample(random) for space in self.spaces])


def each(items: Iterable[K], build: Callable[[K], Space[T]]) -> Union[T]:
    """The union, over the items, of the space that `build` makes for each; all items equally likely."""
    return Union([build(item) for item in items])
