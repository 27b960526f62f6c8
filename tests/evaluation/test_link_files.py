"""Files of links: what is written is read back, and what is malformed is named with file and line."""

import io
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.evaluation.alignment import GoldLinks, naacl, pharaoh, read_hypotheses, read_links, talp

LINKS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)
GOLD = st.tuples(LINKS, LINKS).map(lambda pair: GoldLinks(pair[0], pair[0] | pair[1]))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("links") / "links.txt"


def gold(sure, possible=()):
    return GoldLinks(frozenset(sure), frozenset(sure) | frozenset(possible))


@given(sentences=st.lists(GOLD, max_size=5), one_based=st.booleans())
def test_talp_comes_back(path, sentences, one_based):
    path.write_text("".join(talp(sentence, one_based) + "\n" for sentence in sentences))
    assert read_links(path, one_based=one_based) == sentences


@given(sentences=st.lists(LINKS, max_size=5), one_based=st.booleans())
def test_pharaoh_comes_back(path, sentences, one_based):
    path.write_text("".join(pharaoh(sentence, one_based) + "\n" for sentence in sentences))
    assert read_hypotheses(path, one_based=one_based, format="pharaoh") == sentences


@given(sentences=st.lists(GOLD.filter(lambda links: links.possible), max_size=5), data=st.data())
def test_naacl_comes_back_in_any_order(path, sentences, data):
    path.write_text("\n".join(data.draw(st.permutations(list(naacl(sentences))))))
    assert read_links(path, one_based=True) == sentences


def test_pharaoh_is_sorted_by_number():
    assert pharaoh({(10, 0), (2, 11), (2, 3)}) == "2-3 2-11 10-0"


def test_flip_swaps_the_sides(path):
    path.write_text("0-3 1p2\n")
    assert read_links(path, flip=True) == [gold({(3, 0)}, {(2, 1)})]


def test_empty_lines_are_sentences_without_links(path):
    path.write_bytes(b"0-0\r\n\r\n1-1")
    assert read_links(path) == [gold({(0, 0)}), gold(()), gold({(1, 1)})]


@pytest.mark.parametrize("first", [0, 1])
def test_naacl_sentences_are_counted_from_zero_or_one(path, first):
    path.write_text(f"{first} 1 1\n{first + 2} 2 2\n")
    assert read_links(path, one_based=True) == [gold({(0, 0)}), gold(()), gold({(1, 1)})]


def test_naacl_details(path):
    path.write_text("0001 1 2 S 0.9\n0001 2 2 P\n0003 4 1\n0003 0 2 S\n")
    one = read_links(path, one_based=True)
    assert one == [gold({(0, 1)}, {(1, 1)}), gold(()), gold({(3, 0)})]  # word 0 is the empty word
    assert read_links(path)[2] == gold({(4, 1), (0, 2)})
    assert [links.possible for links in one] == read_hypotheses(path, one_based=True, format="naacl")


def test_a_sentence_linked_to_the_empty_word_only_is_still_a_sentence(path):
    path.write_text("1 1 1\n2 0 1\n")
    assert read_links(path, one_based=True) == [gold({(0, 0)}), gold(())]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0-0\n1-1 2:3\n", {}, ":2: links such as 3-5 or 3p5 are wanted, found '2:3'"),
        ("0-0\n0-1\n", {"one_based": True}, ":1: word 0 in '0-0', but the words count from 1"),
        ("0-0 1p1\n", {"format": "pharaoh"}, ":1: links such as 3-5 are wanted, found '1p1'"),
        ("1 1 1 S\n\n1 2\n", {}, ":3: a line such as '1 3 5 S' is wanted, found '1 2'"),
        ("1 1 1 X\n", {"format": "naacl"}, ":1: a line such as '1 3 5 S' is wanted"),
        ("1 1 1\n99999999 1 1\n", {}, ":2: sentence number 99999999 is beyond"),
        ("-1-2\n", {}, ":1: links such as 3-5 or 3p5 are wanted, found '-1-2'"),
        ("9" * 5000 + "-1\n", {}, ":1: links such as 3-5 or 3p5 are wanted, found '9999"),
    ],
)
def test_malformed_lines_are_named(path, text, options, message):
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{path.name}{message}")) as error:
        read_links(path, **options)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_named(path):
    path.write_bytes(b"0-0\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"links.txt:2: not UTF-8"):
        read_links(path)


def test_unknown_format_is_named(path):
    path.write_text("0-0\n")
    with pytest.raises(ValueError, match="unknown link format 'giza'"):
        read_links(path, format="giza")


def test_a_file_that_counts_from_1_is_told_from_one_that_counts_from_0(tmp_path):
    path = tmp_path / "links"
    path.write_text("1-1 2p3\n" * 10, encoding="utf-8")
    with pytest.warns(UserWarning, match="no link has a word 0"):
        read_links(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_links(path, one_based=True)
        path.write_text("1-1 2p3\n" * 9 + "0-1\n", encoding="utf-8")
        read_links(path)


def test_a_short_file_does_not_become_millions_of_sentences(tmp_path):
    path = tmp_path / "links"
    path.write_text("1 1 1\n9999999 1 1\n")
    with pytest.raises(ValueError, match="sentence number 9999999, and 2 of them have links") as caught:
        read_links(path, one_based=True)
    assert "\n" not in str(caught.value)
    path.write_text("1 1 1\n2000 1 1\n")
    assert len(read_links(path, one_based=True)) == 2000


def test_what_never_ends_is_refused():
    with pytest.raises(ValueError, match="a line over 16 MiB"):
        read_links("/dev/zero")


def test_a_dash_is_the_standard_input(monkeypatch):
    """So that links go from `rela align` to `rela aer` through a pipe, as text does between the other commands."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"0-0 1-2\n\n")))
    assert read_hypotheses("-") == [frozenset({(0, 0), (1, 2)}), frozenset()]
