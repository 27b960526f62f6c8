"""Sentence pairs to begin with: from the embedded corpus, and from files with gold links."""

import pytest

from rela.explorer.examples import GUIDE_WORD, Example, guide_example, text_examples, toy_examples, turned

pytest.importorskip("fastapi")


def test_toy_examples_have_gold_inside_their_words():
    examples = toy_examples()
    assert len({example.key for example in examples}) > 5
    for item in examples:
        assert item.gold.sure
        assert max(s for s, _ in item.gold.possible) < len(item.source.split())
        assert max(t for _, t in item.gold.possible) < len(item.target.split())


def test_the_guide_begins_and_its_word_has_no_link():
    guide = guide_example()
    assert toy_examples()[0] == guide
    assert guide.target.split()[GUIDE_WORD] == "ja"
    assert {t for _, t in guide.gold.sure} == set(range(len(guide.target.split()))) - {GUIDE_WORD}
    assert {s for s, _ in guide.gold.sure} == set(range(len(guide.source.split())))


def test_the_embedded_corpus_is_offered_to_models_of_its_languages_alone():
    assert toy_examples("de", "en")[3] == turned(toy_examples("en", "de")[3])
    assert turned(turned(guide_example())) == guide_example()
    assert toy_examples("ro", "en") == toy_examples("en", "fr") == []


def test_gold_files_are_read_and_must_belong_together(tmp_path):
    source, target, links = (tmp_path / name for name in ("a.en", "a.de", "a.align"))
    source.write_text("the dog\na cat\n")
    target.write_text("der Hund\neine Katze\n")
    links.write_text("0-0 1-1\n0-0 1p1\n")
    examples = text_examples(source, target, links)
    assert [(item.source, item.target) for item in examples] == [("the dog", "der Hund"), ("a cat", "eine Katze")]
    assert examples[1].gold.sure == {(0, 0)}
    assert Example("the  dog", "der Hund").key == examples[0].key
    assert Example("the\u00a0dog", "der Hund").key != examples[0].key, "links count this as one word"
    links.write_text("0-0 1-1\n")
    with pytest.raises(ValueError, match="equally many"):
        text_examples(source, target, links)
    links.write_text("0-0\n0-0 2-1\n")
    with pytest.raises(ValueError, match="sentence 2: link 2-1"):
        text_examples(source, target, links)
