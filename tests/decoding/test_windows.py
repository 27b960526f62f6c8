"""What is translated together: by length, within limits, and never waiting for lines that have not come."""

from __future__ import annotations

import threading

import pytest

from rela.decoding import windows
from rela.decoding.windows import batches_by_length, line_batches

LENGTHS = [3, 9, 0, 5, 5, 30, 1]


def test_batches_are_longest_first_and_within_their_tokens():
    batches = list(batches_by_length(LENGTHS, 20))
    assert sorted(index for batch in batches for index in batch) == list(range(len(LENGTHS)))
    assert batches[0] == [5], "one sentence over the budget goes alone"
    assert all(len(batch) * (max(LENGTHS[i] for i in batch) + 1) <= 20 for batch in batches[1:])
    flat = [LENGTHS[i] for batch in batches for i in batch]
    assert flat == sorted(flat, reverse=True)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_batches_hold_so_many_at_most(most):
    batches = list(batches_by_length(LENGTHS, 20, most))
    assert sorted(index for batch in batches for index in batch) == list(range(len(LENGTHS)))
    assert max(map(len, batches)) == most


def lines_of(lengths, window):
    """A reader of sentences of these lengths, each made of its own number."""
    lines = [[number] * length for number, length in enumerate(lengths)]
    return lambda number: lines[number : number + window]


@pytest.mark.parametrize("window", [1, 3, 7, 100])
def test_every_line_is_in_one_batch_of_its_window(window):
    found = {}
    for batch in filter(None, line_batches(lines_of(LENGTHS, window), window, tokens=12)):
        assert [len(ids) for ids in batch.ids] == [LENGTHS[number] for number in batch.numbers]
        assert [number - index for number, index in zip(batch.numbers, batch.indices, strict=True)] == [
            min(batch.numbers) // window * window
        ] * len(batch.ids)
        found |= dict(zip(batch.numbers, batch.ids, strict=True))
    assert found == {number: [number] * length for number, length in enumerate(LENGTHS)}


def test_a_dialogue_pauses_after_each_window():
    batches = list(line_batches(lines_of([2, 2, 2, 2, 2], 2), 2, tokens=100))
    assert [batch and (batch.numbers, batch.is_last) for batch in batches] == [
        ([0, 1], True),
        None,
        ([2, 3], True),
        None,
        ([4], True),
        None,
    ]


def test_a_large_window_pauses_only_where_the_next_has_not_come(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 2)
    come, read = threading.Event(), lines_of([2, 2, 2, 2], 2)
    there = threading.Event()

    def held_back(number):
        if number == 2:
            there.wait(60)
        if number == 4:
            come.set()
        return read(number)

    batches = line_batches(held_back, 2, tokens=3)
    assert [next(batches).numbers for _ in range(2)] == [[0], [1]]
    assert next(batches) is None
    there.set()
    assert [next(batches).numbers for _ in range(2)] == [[2], [3]]
    assert come.wait(60)
    assert list(batches) in ([], [None])  # the thread that found the end may be about to end itself


def test_what_goes_wrong_in_the_next_window_comes_after_a_pause(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 2)

    def broken(number):
        if number:
            raise ValueError("line 3 is no text")
        return [[1], [2]]

    batches = line_batches(broken, 2, tokens=100)
    assert next(batches).numbers == [0, 1]
    assert next(batches) is None
    with pytest.raises(ValueError, match="line 3 is no text"):
        next(batches)
