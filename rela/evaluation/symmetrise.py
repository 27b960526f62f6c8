"""One set of word links out of the links of two directions."""

from rela.evaluation.link_files import Link

# The eight cells around a link, in the order in which Moses' symal looks at them (target step, source step).
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
SYMMETRISATIONS = ("intersection", "grow-diag", "grow-diag-final", "union")


def symmetrise(forward: frozenset[Link], backward: frozenset[Link], method: str) -> frozenset[Link]:
    """One set of links from the links of two directions, both written as (source word, target word).

    The methods are nested, and each contains the one before: `intersection`; `grow-diag` (Koehn, Och and Marcu,
    2003) adds to it, again and again, links of the union that touch a link already taken, sideways or diagonally,
    and cover a word not yet covered; `grow-diag-final` then adds what still covers a new word, first from `forward`
    (the model that writes the target language), then from `backward`; `union` takes all. Where the result depends
    on the order of additions, ours is that of Moses' symal: by target word, then by source word.
    """
    if method not in SYMMETRISATIONS:
        raise ValueError(f"unknown symmetrisation {method!r}; it is one of {', '.join(SYMMETRISATIONS)}")
    if method == "union":
        return forward | backward
    if method == "intersection":
        return forward & backward

    taken = _Cover(forward & backward)
    taken.grow(forward | backward)
    if method == "grow-diag-final":
        for direction in (forward, backward):
            for link in sorted(direction, key=_target_first):
                taken.add_if_new_word(link)
    return frozenset(taken.links)


class _Cover:
    """A growing set of links and the words they cover."""

    def __init__(self, links: frozenset[Link]):
        self.links = set(links)
        self.sources = {source for source, _ in links}
        self.targets = {target for _, target in links}

    def add_if_new_word(self, link: Link) -> bool:
        """Add a link unless both of its words are covered already; say whether it was added."""
        source, target = link
        if source in self.sources and target in self.targets:
            return False
        self.links.add(link)
        self.sources.add(source)
        self.targets.add(target)
        return True

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
