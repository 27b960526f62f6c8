"""Two directions of links made one: each method by its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.evaluation.alignment import (
    symmetrise,
)
from rela.evaluation.symmetrise import SYMMETRISATIONS

LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20)


@given(LINKS, LINKS)
def test_symmetrisations_are_nested(forward, backward):
    found = {method: symmetrise(forward, backward, method) for method in SYMMETRISATIONS}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    for smaller, larger in (
        ("intersection", "grow-diag"),
        ("grow-diag", "grow-diag-final-and"),
        ("grow-diag", "grow-diag-final"),
        ("grow-diag-final-and", "union"),
        ("grow-diag-final", "union"),
    ):
        assert found[smaller] <= found[larger]


@given(LINKS, LINKS)
def test_final_and_leaves_no_link_between_two_uncovered_words(forward, backward):
    grown, links = (symmetrise(forward, backward, method) for method in ("grow-diag", "grow-diag-final-and"))
    sources, targets = ({link[side] for link in links} for side in (0, 1))
    assert all(source in sources or target in targets for source, target in forward | backward)
    added = links - grown  # each covers two words that nothing else covers
    assert len({source for source, _ in added} | {s for s, _ in grown}) == len(added) + len({s for s, _ in grown})
    assert len({target for _, target in added} | {t for _, t in grown}) == len(added) + len({t for _, t in grown})


@given(LINKS, LINKS)
def test_final_covers_every_word_the_union_covers(forward, backward):
    links, union = (symmetrise(forward, backward, method) for method in ("grow-diag-final", "union"))
    for side in (0, 1):
        assert {link[side] for link in links} == {link[side] for link in union}


@given(LINKS)
def test_two_directions_that_agree_stay_as_they_are(links):
    assert {symmetrise(links, links, method) for method in SYMMETRISATIONS} == {links}


def test_grow_diag_final_by_hand():
    forward = frozenset({(0, 0), (1, 0), (2, 1), (5, 5)})
    backward = frozenset({(0, 0), (1, 1)})
    # (0, 0) is agreed. Beside it (1, 0) covers source word 1, and (1, 1) target word 1; beside that (2, 1) covers
    # source word 2. (5, 5) touches none of them: only the final step takes it.
    grown = {(0, 0), (1, 0), (1, 1), (2, 1)}
    assert symmetrise(forward, backward, "intersection") == {(0, 0)}
    assert symmetrise(forward, backward, "grow-diag") == grown
    assert symmetrise(forward, backward, "grow-diag-final") == grown | {(5, 5)}


def test_final_and_wants_both_words_uncovered():
    forward, backward = frozenset({(0, 0), (0, 4), (5, 5)}), frozenset({(0, 0), (5, 7)})
    # (0, 4) and (5, 7) cover one new word each. (5, 5) covers two, and is first of its direction.
    assert symmetrise(forward, backward, "grow-diag-final") == forward | backward
    assert symmetrise(forward, backward, "grow-diag-final-and") == {(0, 0), (5, 5)}


def test_a_neighbour_between_two_covered_words_is_not_added():
    forward = frozenset({(0, 0), (1, 1), (0, 1)})
    backward = frozenset({(0, 0), (1, 1)})
    assert symmetrise(forward, backward, "grow-diag-final") == {(0, 0), (1, 1)}
    assert symmetrise(forward, backward, "union") == forward


def test_unknown_method_is_named():
    with pytest.raises(ValueError, match="unknown symmetrisation 'grow'"):
        symmetrise(frozenset(), frozenset(), "grow")


@pytest.mark.parametrize("step", [(source, target) for source in range(-2, 3) for target in range(-2, 3)])
def test_the_eight_cells_around_a_link_are_its_neighbours(step):
    agreed, other = (3, 3), (3 + step[0], 3 + step[1])
    found = symmetrise(frozenset({agreed, other}), frozenset({agreed}), "grow-diag")
    assert found == ({agreed, other} if max(map(abs, step)) <= 1 else {agreed})
