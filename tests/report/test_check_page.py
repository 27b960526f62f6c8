"""The page of checked pairs: the worst first, flagged words marked, all text escaped."""

from dataclasses import replace

from rela.filtering.check import PairCheck, WordCheck
from rela.report.check_page import one_word, worst_first, write_check_page


def make_check(line, score, word="<b>", flagged=True):
    words = [WordCheck("fine", 0.1, -1.0), WordCheck(word, 0.9, -5.0, flagged=flagged)]
    return PairCheck(
        line,
        "s",
        "t",
        score=score,
        verdict="warn",
        log_prob=-1.0,
        null_rate=0.2,
        target_words=words,
        source_words=[WordCheck("source", None, attention=0.5)],
    )


def test_the_worst_come_first_and_only_so_many_are_kept():
    checks = [make_check(line, score) for line, score in enumerate([0.2, 0.9, 0.4, 0.9], start=1)]
    unread = PairCheck(9, "", "", problem="empty")
    assert [check.line for check in worst_first(iter([*checks, unread]), 3)] == [2, 4, 3]


def test_pairs_that_are_the_same_and_have_no_letter_do_not_push_others_from_the_page():
    """Their score is that of a copy, and their verdict is ok."""
    numbers = [replace(make_check(line, 0.99), verdict="ok") for line in (1, 2, 3)]
    others = [
        make_check(4, 0.9),
        replace(make_check(5, 0.5), verdict="notice"),
        replace(make_check(6, 0.1), verdict="ok"),
    ]
    assert [check.line for check in worst_first([*numbers, *others], 4)] == [4, 5, 1, 2]


def test_flagged_words_are_marked_and_text_is_escaped(tmp_path):
    write_check_page(tmp_path / "page.html", [make_check(3, 0.75), make_check(4, 0.5, "quiet", False)], 7, 1, "How.")
    page = (tmp_path / "page.html").read_text()
    assert '<mark title="null rate 0.90">&lt;b&gt;</mark>' in page
    assert "<b>" not in page
    word = WordCheck("x", 0.9, -5.0, lacking=2.5, link=0.013, missing=5.461, flagged=True)
    assert one_word(word) == '<mark title="nats lacking 2.50, link 0.01, null rate 0.90">x</mark>'
    assert page.count("<mark") == 1
    assert "7 pairs were checked, 1 of them" in page
