"""Word links that become a set when somebody looks at them: search on a GPU has many to give, and little time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.evaluation.link_files import Link


class WordLinks(Set[Link]):
    """The links (source word, target word) of one translation, equal to the frozenset of them.

    They are given as the source word of each target word, or -1 where it has none.
    """

    __slots__ = ("best", "made")

    def __init__(self, best: Sequence[int] | NDArray[np.int32]) -> None:
        self.best = best
        self.made: frozenset[Link] | None = None

    @property
    def links(self) -> frozenset[Link]:
        """The set itself, made at the first call."""
        if self.made is None:
            best = np.asarray(self.best).tolist()
            self.made = frozenset([(source, target) for target, source in enumerate(best) if source >= 0])
        return self.made

    @classmethod
    def _from_iterable(cls, links: Any) -> frozenset[Link]:  # type: ignore[override]
        """What `&`, `|` and the like give."""
        return frozenset(links)

    def __contains__(self, link: object) -> bool:
        return link in self.links

    def __iter__(self) -> Iterator[Link]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def __eq__(self, other: object) -> bool:
        return self.links == (other.links if isinstance(other, WordLinks) else other)

    def __hash__(self) -> int:
        return hash(self.links)

    def __repr__(self) -> str:
        return repr(self.links)


def links_of(is_read: int, best: Sequence[int] | NDArray[np.int32]) -> WordLinks | None:
    """The links of what a ReadLinks (rela.decoding.engines.gpu_search) gives for one pair; None where it gave none."""
    return WordLinks(best) if is_read else None
