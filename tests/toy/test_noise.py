"""Noise on purpose: each kind does what it says, and nothing else."""

from collections import Counter

import pytest

from rela.toy import NOISES, ToyPair, add_noise, generate
from rela.toy.noise import phrase_spans


@pytest.fixture(scope="module")
def pairs() -> list[ToyPair]:
    return list(generate(600, 11))


def linked_words(pair: ToyPair) -> list[tuple[str, str]]:
    """The links as lower-cased words, since a word that becomes the first one gets a capital letter."""
    source, target = pair.source.split(), pair.target.split()
    return [(source[i].lower(), target[j].lower()) for i, j in pair.links]


@pytest.mark.parametrize("kind", NOISES)
def test_noise_keeps_sources_and_order_and_names_itself(pairs, kind):
    noisy = add_noise(pairs, kind, 1)
    assert [(pair.source, pair.construction) for pair in noisy] == [(pair.source, pair.construction) for pair in pairs]
    assert {pair.noise for pair in noisy} == {kind}
    assert all(new.target != old.target for new, old in zip(noisy, pairs, strict=True))
    assert noisy == add_noise(pairs, kind, 1)
    if kind != "wrong-language":
        assert noisy != add_noise(pairs, kind, 2)
    for pair in noisy:
        assert list(pair.links) == sorted(set(pair.links))
        assert all(i < len(pair.source.split()) and j < len(pair.target.split()) for i, j in pair.links)


@pytest.mark.parametrize("count", [0, 2, 3, 600])
def test_shuffled_targets_are_all_there_and_none_in_its_place(pairs, count):
    noisy = add_noise(pairs[:count], "shuffled", 3)
    assert Counter(pair.target for pair in noisy) == Counter(pair.target for pair in pairs[:count])
    assert all(new.target != old.target for new, old in zip(noisy, pairs, strict=False))
    assert all(pair.links == () for pair in noisy)


def test_wrong_language_is_the_english_source(pairs):
    assert all(pair.target == pair.source and pair.links == () for pair in add_noise(pairs, "wrong-language", 1))


def test_insertion_keeps_the_target_and_its_links(pairs):
    before = after = 0
    for new, old in zip(add_noise(pairs, "insertion", 1), pairs, strict=True):
        assert linked_words(new) == linked_words(old)
        before += new.target.endswith(" " + old.target)
        after += new.target.startswith(old.target + " ")
    assert before + after == len(pairs)
    assert min(before, after) > len(pairs) / 3


def test_what_is_inserted_has_nothing_to_do_with_the_pair(pairs):
    for new, old in zip(add_noise(pairs, "insertion", 1), pairs, strict=True):
        inserted = Counter(new.target.split()) - Counter(old.target.split())
        assert {word.lower() for word in inserted if len(word) > 4}.isdisjoint(old.target.lower().split())


def test_omission_drops_a_stretch_of_the_target_and_exactly_its_links(pairs):
    for new, old in zip(add_noise(pairs, "omission", 1), pairs, strict=True):
        short, long = new.target.lower().split(), old.target.lower().split()
        width = len(long) - len(short)
        assert width > 0
        assert short[-1] == long[-1]
        cuts = [start for start in range(len(short)) if long[:start] + long[start + width :] == short]
        expected = [
            [(i, j if j < start else j - width) for i, j in old.links if not start <= j < start + width]
            for start in cuts
        ]
        assert list(new.links) in expected
        assert len(new.links) < len(old.links)


def test_phrase_spans_translate_a_stretch_of_the_source():
    # He(0) calls(1) the(2) boy(3) → er(0) ruft(1) den(2) Jungen(3) an(4)
    links = ((0, 0), (1, 1), (1, 4), (2, 2), (3, 3))
    assert phrase_spans(links, 5) == [(0, 1), (0, 5), (1, 5), (2, 3), (2, 4), (3, 4)]


def test_bad_requests_are_refused(pairs):
    with pytest.raises(ValueError, match="unknown noise 'loud'; there are shuffled, wrong-language"):
        add_noise(pairs, "loud", 1)
    with pytest.raises(ValueError, match="cannot shuffle 1 pair"):
        add_noise(pairs[:1], "shuffled", 1)
