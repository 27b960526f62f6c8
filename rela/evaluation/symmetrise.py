"""One set of word links out of the links of two directions."""

from rela.evaluation.link_files import Link

# The eight cells around a link, in the order in which Moses' symal looks at them (target step, source step).
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
SYMMETRISATIONS = ("intersection", "grow-diag", "grow-diag-final-and", "grow-diag-final", "union")
FINAL = ("grow-diag-final-and", "grow-diag-final")


def symmetrise(forward: frozenset[Link], backward: frozenset[Link], method: str) -> frozenset[Link]:
    """One set of links from the links of two directions, both written as (source word, target word).

    - `intersection`: links that both directions draw.
    - `grow-diag` (Koehn, Och and Marcu, 2003) adds to it, again and again, links of the union that touch a link already
      taken, sideways or diagonally, and cover a word not yet covered.
    - `grow-diag-final-and`, what the literature mostly reports, then adds links whose *two* words are still uncovered,
      first from `forward` (the model that writes the target language), then from `backward`.
    - `grow-diag-final` adds links that cover a new word on *either* side, in the same order.
    - `union`: all links.

    `grow-diag` contains the intersection, both `final` methods contain `grow-diag`, and the union contains all. Where
    the result depends on the order of additions, ours is that of Moses' symal: by target word, then by source word.
    """
    if method not in SYMMETRISATIONS:
        raise ValueError(f"unknown symmetrisation {method!r}; it is one of {', '.join(SYMMETRISATIONS)}")
    if method == "union":
        return forward | backward
    if method == "intersection":
        return forward & backward

    taken = _Cover(forward & backward)
    taken.grow(forward | backward)
    if method in FINAL:
        add = taken.add_if_both_new if method == "grow-diag-final-and" else taken.add_if_new_word
        for direction in (forward, backward):
            for link in sorted(direction, key=_target_first):
                add(link)
    return frozenset(taken.links)


class _Cover:
    """A growing set of links and the words they cover."""

    def __init__(self, links: frozenset[Link]):
        self.links = set(links)
        self.sources = {source for source, _ in links}
        self.targets = {target for _, target in links}

    def add_if_new_word(self, link: Link) -> bool:
        """Add a link unless both of its words are covered already; say whether it was added."""
        return self._add(link, link[0] not in self.sources or link[1] not in self.targets)

    def add_if_both_new(self, link: Link) -> bool:
        """Add a link if neither of its words is covered; say whether it was added."""
        return self._add(link, link[0] not in self.sources and link[1] not in self.targets)

    def _add(self, link: Link, wanted: bool) -> bool:
        if wanted:
            self.links.add(link)
            self.sources.add(link[0])
            self.targets.add(link[1])
        return wanted

    def grow(self, union: frozenset[Link]) -> None:
        """Add neighbours out of `union` until none is left that covers a new word."""
        order = sorted(union, key=_target_first)
        grown = True
        while grown:
            grown = False
            for source, target in order:
                # A link added a moment ago counts already when its turn comes in the same pass.
                if (source, target) not in self.links:
                    continue
                for target_step, source_step in NEIGHBOURS:
                    neighbour = (source + source_step, target + target_step)
                    grown |= neighbour in union and self.add_if_new_word(neighbour)


def _target_first(link: Link) -> Link:
    return link[1], link[0]
