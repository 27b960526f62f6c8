"""The clocks: times are those of the call, and a contender that cannot run is named with the reason."""

from __future__ import annotations

import contextlib
import time
from functools import partial

import pytest
import torch

from benchmarks.clocks import Contender, median, spread, take_turns

CPU = torch.device("cpu")


def test_times_are_those_of_the_call():
    slow, quick = Contender(lambda: time.sleep(0.004)), Contender(lambda: None)
    times, left_out = take_turns({"slow": slow, "quick": quick}, 3, CPU, milliseconds=8.0)
    assert not left_out
    for measure in ("host", "eager"):
        assert len(times["slow"].of(measure)) == 3
        assert min(times["slow"].of(measure)) >= 4000
        assert median(times["quick"].of(measure)) < 1000
    assert times["slow"].device == []


def test_one_that_fails_is_left_out_and_says_why():
    def fail() -> None:
        raise RuntimeError("no kernel for this\nand more lines")

    times, left_out = take_turns({"good": Contender(lambda: None), "bad": Contender(fail)}, 1, CPU)
    assert list(times) == ["good"]
    assert left_out == {"bad": "RuntimeError: no kernel for this"}


def test_the_context_holds_while_a_contender_is_measured():
    seen = set()
    take_turns({"one": Contender(lambda: seen.add(torch.is_grad_enabled()), torch.no_grad)}, 1, CPU)
    assert seen == {False}
    assert isinstance(Contender(lambda: None).context(), contextlib.nullcontext)


def test_the_spread_is_a_share_of_the_median():
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert spread([5.0]) is None
    assert median([]) is None


def test_a_slow_backend_has_one_turn():
    """Of many that do the same, one that takes four times as long as the quickest; others have all their turns."""
    slow = partial(time.sleep, 0.02)  # so much longer that a busy machine does not make them equal
    contenders = {"ours": Contender(slow), "slow": Contender(slow, one_of_many=True)}
    contenders["quick"] = Contender(lambda: None, one_of_many=True)
    times, _ = take_turns(contenders, 3, CPU, milliseconds=1.0)
    assert {name: len(taken.eager) for name, taken in times.items()} == {"ours": 3, "slow": 1, "quick": 3}


def test_a_contender_can_ask_for_more_turns():
    """All contenders of its case have as many: they are compared turn by turn."""
    contenders = {"model": Contender(lambda: None, turns=5), "other": Contender(lambda: None)}
    times, _ = take_turns(contenders, 2, CPU, milliseconds=0.1)
    assert {name: len(taken.eager) for name, taken in times.items()} == {"model": 5, "other": 5}
