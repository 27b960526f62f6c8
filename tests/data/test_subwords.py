"""Subwords: nothing is lost on the way to ids and back, and words stay words."""

import io
import pickle
import zipfile

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from rela.analysis.words import word_index, words
from rela.data.corpus import CorpusError
from rela.data.subwords import (
    BOS,
    EOS,
    PAD,
    UNK,
    WORD_START,
    Subwords,
    joined,
    pack_models,
    split_words,
    train_subwords,
)

LINES = [f"the {a} cat saw {b} mice, and der Kater sah {a} Mäuse … ½" for a in range(20) for b in range(20)]
ALPHABET = sorted(set("".join(LINES)))


@pytest.fixture(scope="module")
def subwords():
    return train_subwords(LINES, 120, seed=1)


def test_specials_and_size(subwords):
    assert subwords.size == 120
    assert subwords.pieces([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]


@given(text=st.text([*ALPHABET, " ", "\u00a0", "\t"], max_size=40))
def test_text_survives_up_to_white_space_and_words_are_those_of_split(subwords, text):
    ids = subwords.encode(text)
    assert subwords.decode(ids) == " ".join(text.split())
    assert list(words(subwords.pieces(ids))) == text.split()


def test_characters_are_not_rewritten(subwords):
    assert subwords.decode(subwords.encode("Mäuse … ½")) == "Mäuse … ½"


def test_accents_apart_and_invisible_characters_are_read_where_they_are_unknown(subwords):
    text = "der Ka\u00adter sah\u200b Ma\u0308use \u00ad \ufeffund 猫"
    wanted = subwords.encode("der Kater sah Mäuse 猫 und 猫")
    assert subwords.encode(text) == subwords.encode_batch(["the cat", text])[1] == wanted
    assert max(word_index(subwords.pieces(wanted))) + 1 == len(text.split())
    knows = train_subwords([*LINES, text], 130, seed=1)
    assert knows.readable(text) == text
    assert knows.decode(knows.encode(text)) == text


def test_the_word_mark_in_a_text_does_not_split_a_word(subwords):
    assert max(word_index(subwords.pieces(subwords.encode("cat▁cat mice")))) == 1


def test_batches_agree_with_single_texts(subwords):
    texts = ["the cat", "", " saw   mice ", "Kater"]
    assert subwords.encode_batch(texts) == [subwords.encode(text) for text in texts]
    assert subwords.encode_batch(texts, threads=2) == subwords.encode_batch(texts)
    assert subwords.encode_batch([]) == []


def test_specials_vanish_and_unknown_characters_show(subwords):
    ids = subwords.encode("the cat")
    assert subwords.decode([BOS, *ids, EOS, PAD, PAD]) == "the cat"
    assert UNK in subwords.encode("the 猫")
    assert "⁇" in subwords.decode(subwords.encode("the 猫"))


def test_an_id_outside_the_vocabulary_is_named(subwords):
    with pytest.raises(ValueError, match="id 120 is not in the vocabulary of 120"):
        subwords.decode([120])
    with pytest.raises(ValueError, match="id -1 "):
        subwords.pieces([-1])


def test_saved_and_loaded_is_the_same(subwords, tmp_path):
    subwords.save(tmp_path / "m.model")
    loaded = Subwords.load(tmp_path / "m.model")
    assert loaded.sha256 == subwords.sha256
    assert loaded.encode(LINES[7]) == subwords.encode(LINES[7])
    assert pickle.loads(pickle.dumps(subwords)).encode(LINES[7]) == subwords.encode(LINES[7])
    assert [path.name for path in tmp_path.iterdir()] == ["m.model"]


@pytest.mark.parametrize("damage", [lambda m: m[: len(m) // 2], lambda m: m[:-1], lambda m: b"", lambda m: b"x" * 99])
def test_a_damaged_model_file_is_an_error_that_names_it(subwords, tmp_path, damage):
    path = tmp_path / "m.model"
    path.write_bytes(damage(subwords.model))
    with pytest.raises(ValueError, match=r"m\.model: these \d+ bytes are no SentencePiece model"):
        Subwords.load(path)


def test_learning_is_deterministic(subwords):
    assert train_subwords(iter(LINES), 120, seed=1).sha256 == subwords.sha256


def test_words_with_counts_teach_what_the_lines_teach(subwords):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type="bpe",
        vocab_size=120,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        unk_id=UNK,
        minloglevel=2,
    )
    assert Subwords(model.getvalue()).pieces(range(120)) == subwords.pieces(range(120))


def test_too_few_lines_too_small_a_size_and_nothing_at_all():
    with pytest.raises(ValueError, match=r"^400 lines are too few for a vocabulary of 9000; they allow at most \d+"):
        train_subwords(LINES, 9000, seed=1)
    with pytest.raises(ValueError, match=r"^a vocabulary of 16 cannot hold every character; wanted at least \d+"):
        train_subwords(LINES, 16, seed=1)
    with pytest.raises(ValueError, match=r"^no text to learn a vocabulary of 50 from"):
        train_subwords([], 50, seed=1)


def test_an_error_in_the_lines_comes_through_as_itself():
    def lines():
        yield from LINES
        raise CorpusError("a.de, line 401: not UTF-8")

    with pytest.raises(CorpusError, match=r"^a\.de, line 401: not UTF-8$"):
        train_subwords(lines(), 100, seed=1)


NO_BREAK_TEXT = "10\u00a0000 Hunde\u2003sehen z.\u202fB.\u2007alles \u00a0 heute"


def test_a_no_break_space_is_inside_a_word():
    words = ["10\u00a0000", "Hunde", "sehen", "z.\u202fB.\u2007alles", "heute"]
    assert split_words(NO_BREAK_TEXT) == words
    assert split_words("a \u00a0b\t\n") == ["a", "\u00a0b"]
    assert split_words(" \u00a0 ") == []
    subwords = train_subwords([NO_BREAK_TEXT] * 3, 40)
    pieces = joined(subwords.pieces(subwords.encode(NO_BREAK_TEXT)), NO_BREAK_TEXT)
    spelled = "".join(pieces).split(WORD_START)[1:]
    assert [" ".join(word.split()) for word in spelled] == [" ".join(word.split()) for word in words]
    plain = subwords.pieces(subwords.encode("10 000 Hunde"))
    assert joined(plain, "10 000 Hunde") == tuple(plain)


def test_two_vocabularies_travel_as_one_archive_of_bytes():
    one, two = train_subwords(["abab abc"] * 9, 14), train_subwords(["xyxy xyz"] * 9, 14)
    both = pack_models(one, two)
    assert both.model == pack_models(one, two).model
    again = Subwords(both.model)
    assert (again.source.model, again.is_joint, one.is_joint) == (one.model, False, True)
    assert again.decode(again.encode("xyxy xyz")) == "xyxy xyz"
    assert again.source.encode("abc") == one.encode("abc")
    assert UNK in again.encode("abc")


def archive(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, value in members.items():
            file.writestr(f"{name}.model", value)
    return content.getvalue()


@pytest.mark.parametrize(
    "content", [b"PK", b"PK\x03\x04" + bytes(40), archive(source=b"x"), archive(source=b"", target=b"")], ids=range(4)
)
def test_an_archive_of_anything_else_is_one_line(content):
    with pytest.raises(ValueError, match="this archive is not one of") as caught:
        Subwords(content)
    assert "\n" not in str(caught.value)
