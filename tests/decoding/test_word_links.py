"""Links that are made late are those of a set that is made at once."""

import pickle

from rela.decoding.word_links import WordLinks, links_of

BEST = [2, -1, 0, 0, -1]
LINKS = frozenset({(2, 0), (0, 2), (0, 3)})


def test_they_are_a_set_of_links():
    links = WordLinks(BEST)
    assert links == LINKS
    assert {LINKS} == {links}
    assert links == WordLinks(BEST[:4])
    assert links != WordLinks([2])
    assert {links: 1}[LINKS] == 1
    assert sorted(links) == sorted(LINKS)
    assert (2, 0) in links
    assert (1, 0) not in links
    assert repr(links) == repr(LINKS)
    assert pickle.loads(pickle.dumps(links)) == links


def test_what_is_made_of_them_is_a_set():
    links = WordLinks(BEST)
    assert links | {(5, 5)} == LINKS | {(5, 5)}
    assert frozenset({(2, 0)}) & links == {(2, 0)}
    assert isinstance(links & LINKS, frozenset)
    assert not WordLinks([-1, -1])
    assert links_of(0, BEST) is None
    assert links_of(1, BEST) == LINKS


def test_nothing_is_made_before_somebody_looks():
    links = WordLinks(BEST)
    assert links.made is None
    assert len(links) == 3
    assert links.links is links.links
