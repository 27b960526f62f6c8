"""A word and a punctuation mark are not linked."""

import pytest

from rela.alignment.choose import Aligner
from rela.alignment.corpus import align_corpus, all_links
from rela.alignment.online import OnlineLinks
from rela.alignment.punctuation import is_mark, same_sort
from tests.tiny_models import tiny_translator

PAIRS = [("The dog , he sleeps .", "Der Hund , er schläft ."), ("A well-known 50 % .", "Bekannte 50 % !"), ("", "")]


@pytest.mark.parametrize("word", [".", ",", "...", "?!", "“", "»", "。", "」", "،", "؟", "۔", "।", "''"])
def test_marks(word: str):
    assert is_mark(word)


@pytest.mark.parametrize("word", ["", "a", "a.", "-", "–", "%", "&", "3,5", "z.B.", "$", "/", "'s"])
def test_words(word: str):
    assert not is_mark(word)


def test_links_between_words_or_between_marks_are_kept():
    source, target = ["he", "said", ",", "yes", "."], ["„", "ja", "“", ",", "sagte", "er", "."]
    links = {(0, 5), (1, 4), (2, 3), (3, 1), (4, 6), (2, 0), (2, 1), (3, 0), (4, 5)}
    assert same_sort(links, source, target) == {(0, 5), (1, 4), (2, 3), (3, 1), (4, 6), (2, 0)}


def test_every_way_to_links_follows_the_rule():
    translator = tiny_translator()
    aligner = Aligner(translator)
    sides = list(zip(*PAIRS, strict=True))
    expected = [
        same_sort(links, source.split(), target.split())
        for links, (source, target) in zip(all_links(aligner, PAIRS, None, None), PAIRS, strict=True)
    ]
    assert any(expected)
    assert expected != list(all_links(aligner, PAIRS, None, None)), "else there was nothing to leave out"
    assert list(align_corpus(aligner, PAIRS)) == expected
    assert list(aligner.align(*sides)) == expected
    reader = OnlineLinks(translator)
    for (source, target), links in zip(PAIRS, expected, strict=True):
        ids = translator.subwords.encode(source), translator.subwords.encode(target)
        assert reader.read(*ids, None) == links


def test_a_no_break_space_joins_words_in_links_while_translating_too():
    translator = tiny_translator()
    reader = OnlineLinks(translator)
    text = "50\u00a0% , he said ."
    ids = translator.subwords.encode(text), translator.subwords.encode("The dog .")
    links = reader.all_links(*ids, None, text)
    assert reader.read(*ids, None, text) == same_sort(links, text.split(" "), ["The", "dog", "."])
    every = frozenset((s, t) for s in range(5) for t in range(3))
    reader.all_links = lambda *_: every
    assert reader.read(*ids, None, text) == same_sort(every, text.split(" "), ["The", "dog", "."])
