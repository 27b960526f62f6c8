"""The toy corpus as its users see it: determinism, distinctness, splits, one translation for each sentence, files."""

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from rela.toy import (
    CONSTRUCTIONS,
    generate,
    lexicon_size,
    pharaoh,
    sentence_counts,
    split,
    write_corpus,
)
from rela.toy.constructions import construction
from rela.toy.lexicon import entries

SEED = 2104


def test_the_same_seed_gives_the_same_pairs_and_another_seed_others():
    assert list(generate(300, 5)) == list(generate(300, 5))
    assert set(generate(300, 5)).isdisjoint(generate(300, 6))


def test_pairs_come_lazily_and_a_longer_run_begins_with_the_shorter_one():
    assert list(islice(generate(10**15, 5), 100)) == list(generate(100, 5))


def test_no_pairs_are_no_pairs_and_a_negative_count_is_an_error():
    assert list(generate(0, 1)) == []
    with pytest.raises(ValueError, match="-1 pairs"):
        generate(-1, 1)
    with pytest.raises(ValueError, match="5, -2 and 3"):
        split(5, -2, 3, 1)


def words(line: str) -> str:
    """The line without its final stop: another stop makes no other sentence."""
    return line.rsplit(" ", 1)[0]


def test_pairs_are_distinct_in_both_languages(pairs):
    assert len(pairs) == 20_000
    assert len({words(pair.source) for pair in pairs}) == len({words(pair.target) for pair in pairs}) == 20_000


def test_splits_share_no_sentence_in_either_language():
    train, valid, test = parts = split(4000, 300, 200, 7)
    assert [len(part) for part in parts] == [4000, 300, 200]
    for one, other in ((train, valid), (train, test), (valid, test)):
        assert {words(pair.source) for pair in one}.isdisjoint(words(pair.source) for pair in other)
        assert {words(pair.target) for pair in one}.isdisjoint(words(pair.target) for pair in other)


def test_held_out_pairs_stay_when_more_training_pairs_are_asked_for():
    assert split(10, 30, 20, 7)[1:] == split(500, 30, 20, 7)[1:]


def test_an_english_sentence_has_one_german_translation_and_one_set_of_links():
    """Drawn from the grammar itself, where sentences may come twice, unlike from `generate`."""
    translations: dict[str, tuple] = {}
    repeated = 0
    for name in CONSTRUCTIONS:
        random = Random(SEED)
        space = construction(name)
        for _ in range(500):
            sentence = space.sample(random)
            meaning = (sentence.german, sentence.links)
            repeated += sentence.english in translations
            assert translations.setdefault(sentence.english, meaning) == meaning, sentence.english
    assert repeated > 100  # else the assertion above had nothing to compare


def test_there_are_as_many_sentences_as_the_grammar_says_where_all_can_be_listed():
    space = construction("profession")
    sentences = [space[index] for index in range(space.size)]
    assert len({sentence.english for sentence in sentences}) == space.size == sentence_counts()["profession"]


def test_numbers_drawn_at_random_name_different_sentences():
    """Two numbers for one sentence would make the counts too large; `space[index]` reaches every sentence evenly."""
    random = Random(SEED)
    for name in CONSTRUCTIONS:
        space = construction(name)
        numbers = {random.randrange(space.size) for _ in range(100)}
        assert len({space[number].english for number in numbers}) == len(numbers), name


def test_the_grammar_is_as_large_as_promised():
    assert len(CONSTRUCTIONS) == len(set(CONSTRUCTIONS)) >= 12
    assert sum(sentence_counts().values()) > 10**20
    sizes = lexicon_size()
    assert sizes["english"] >= 400
    assert sizes["german"] >= 400
    assert sizes["noun"] == len(entries()["noun"])


def test_every_construction_is_used(pairs):
    counts = {name: sum(pair.construction == name for pair in pairs) for name in CONSTRUCTIONS}
    assert min(counts.values()) > 50, counts


def test_lines_are_words_separated_by_single_spaces_and_mostly_short(pairs):
    lengths = []
    for pair in pairs:
        for line in (pair.source, pair.target):
            assert line == " ".join(line.split())
            assert line[0].isupper()
            assert line.split()[-1] in (".", "!", "?")
        assert pair.source[-1] == pair.target[-1]
        lengths.append(len(pair.source.split()))
    assert sum(4 <= length <= 16 for length in lengths) > 0.95 * len(lengths)
    assert max(lengths) < 30


def test_the_vocabulary_stays_small_enough_for_a_small_model(pairs):
    assert len({word for pair in pairs for word in pair.source.split()}) <= 1200
    assert len({word for pair in pairs for word in pair.target.split()}) <= 1650


def test_pharaoh_writes_links_as_usual():
    assert pharaoh([(0, 0), (1, 2), (10, 3)]) == "0-0 1-2 10-3"
    assert pharaoh(()) == ""


def test_files_hold_what_was_given_and_nothing_else_is_left(tmp_path: Path):
    train, valid, _ = split(40, 7, 0, 3)
    write_corpus(tmp_path / "toy", {"train": train, "valid": valid}, labels=True)
    names = {f"{part}.{suffix}" for part in ("train", "valid") for suffix in ("en", "de", "align", "tsv")}
    assert {path.name for path in (tmp_path / "toy").iterdir()} == names
    for name, expected in (("train", train), ("valid", valid)):
        columns = [
            (tmp_path / "toy" / f"{name}.{suffix}").read_bytes().decode("utf-8").split("\n")
            for suffix in ("en", "de", "align")
        ]
        assert all(column.pop() == "" for column in columns)
        read = [
            (en, de, tuple(tuple(map(int, link.split("-"))) for link in links.split()))
            for en, de, links in zip(*columns, strict=True)
        ]
        assert read == [(pair.source, pair.target, pair.links) for pair in expected]
    assert (tmp_path / "toy" / "valid.tsv").read_text("utf-8").splitlines()[0] == f"{valid[0].construction}\tnone"


def test_old_files_survive_when_writing_fails(tmp_path: Path):
    train, valid, _ = split(5, 5, 0, 3)
    write_corpus(tmp_path, {"train": train})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken():
        yield valid[0]
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_corpus(tmp_path, {"train": valid, "test": broken()})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_corpus_does_not_depend_on_the_hash_seed():
    """Nothing may be drawn in the order of a set: it changes from one process to the next."""
    program = "from rela.toy import generate; print(list(generate(200, 9)))"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    assert run.stdout.decode("utf-8").strip() == str(list(generate(200, 9)))
