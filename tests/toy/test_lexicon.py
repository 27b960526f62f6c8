"""The lexicon is counted by part of speech and by language."""

from rela.toy.lexicon import entries, lexicon_size


def test_counts_are_those_of_the_entries():
    sizes, parts = lexicon_size(), entries()
    assert {part: sizes[part] for part in parts} == {part: len(pairs) for part, pairs in parts.items()}
    assert 0 < sizes["english"] <= sum(map(len, parts.values()))
    assert 0 < sizes["german"] <= sum(map(len, parts.values()))


def test_known_entries():
    parts = entries()
    assert ("dog", "Hund") in parts["noun"]
    assert ("call", "anrufen") in parts["verb"]
    assert ("old", "alt") in parts["adjective"]
    assert ("because", "weil") in parts["other"]
    assert all(english and german for pairs in parts.values() for english, german in pairs)
