"""Tokenised text shown to a model of raw text: what it becomes, and that words stay the tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rela.analysis.capture import capture
from rela.analysis.tokenised import pieces_by_token, raw_text
from rela.analysis.words import word_index, words
from tests.tiny_models import tiny_translator


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("Of course , he ( too ) pays .", "Of course, he (too) pays."),
        ("the House 's view ; don 't", "the House's view; don't"),
        ("' Legal drugs ' are a \" problem \" !", "'Legal drugs' are a \"problem\"!"),
        ("60 % of it : yes - no", "60% of it: yes - no"),
        ("„ Ja “ , sagte er , “ yes ”", "„Ja“, sagte er, “yes”"),
        (".", "."),
        ("", ""),
    ],
)
def test_text_as_one_would_write_it(tokens, text):
    assert raw_text(tokens.split()) == text


@given(st.lists(st.text("ab.,'\"()%s", min_size=1, max_size=4), max_size=8), st.randoms())
def test_every_cut_into_pieces_that_begins_with_the_tokens_is_followed(tokens, random):
    text, begins = raw_text(tokens).replace(" ", "▁"), set()
    place = 0
    for token in tokens:
        begins.add(place)
        place += len(token)
    pieces, place = [], 0
    for letter in text:  # cut before every token and, at random, elsewhere
        if letter == "▁":
            pieces.append("▁")
        elif pieces and place not in begins and random.random() < 0.5:
            pieces[-1] += letter
        else:
            pieces.append(letter)
        place += letter != "▁"
    marked = pieces_by_token(pieces, tokens)
    assert marked is not None
    assert len(marked) == len(pieces)
    assert words(marked) == tuple(tokens)


def test_pieces_that_cannot_be_followed():
    assert pieces_by_token(["▁a,"], ["a", ","]) is None  # a token begins inside a piece
    assert pieces_by_token(["▁..."], ["…"]) is None  # normalised to other letters
    assert pieces_by_token(["▁a", ","], ["a", ","]) == ("▁a", "▁,")


def test_records_count_tokens_and_show_raw_text():
    translator = tiny_translator()
    pair = ("The dog , a cook , sleeps .", "Der Hund schläft , ja .")
    (told,) = capture(translator, [pair], ("cross",), tokenised=True)
    (raw,) = capture(translator, [(raw_text(pair[0].split()), raw_text(pair[1].split()))], ("cross",))
    assert torch.equal(told["cross"].weights, raw["cross"].weights)
    assert words(told["cross"].keys)[:-1] == tuple(pair[0].split())
    assert max(word_index(told["cross"].queries)) == len(pair[1].split())  # and </s>


def test_a_side_that_cannot_be_followed_is_read_as_it_is():
    translator = tiny_translator()
    pair = ("½ dog , sleeps .", "Der Hund , .")  # the subword model writes ½ as three letters
    (told,) = capture(translator, [pair], ("cross",), tokenised=True)
    (plain,) = capture(translator, [(pair[0], raw_text(pair[1].split()))], ("cross",))
    assert torch.equal(told["cross"].weights, plain["cross"].weights)
    assert len(words(told["cross"].keys)) - 1 == len(pair[0].split())
