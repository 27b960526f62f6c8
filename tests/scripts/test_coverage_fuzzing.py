"""What the script says to libFuzzer and reads from it; atheris itself is no dependency of the project."""

from __future__ import annotations

import importlib

import pytest

from scripts.coverage_fuzzing import LAZY, dictionary, fuzz_in_fork, outcome
from tests.fuzzing import TARGETS


def test_pieces_become_words_of_a_dictionary():
    assert dictionary([b'a"', b"\0\xff", b"[" * 65]) == '"\\x61\\x22"\n"\\x00\\xff"\n'


def test_executions_and_the_exception_that_ended_them_are_read():
    assert outcome("#2\tINITED cov: 9\nDone 153 runs in 2 second(s)\n") == (153, "")
    count, error = outcome("#2\tINITED cov: 9\n#64\tNEW cov: 10\n === Uncaught Python exception: ===\nKeyError: 3\n")
    assert count == 64
    assert error.endswith("KeyError: 3\n")
    assert outcome("") == (0, "no output")


@pytest.mark.parametrize("name", LAZY)
def test_what_is_imported_before_is_there(name):
    assert importlib.import_module(name)


def test_a_target_is_fuzzed_in_a_process_of_its_own(tmp_path):
    atheris = pytest.importorskip("atheris")
    count, error = fuzz_in_fork(atheris, TARGETS["talp"], tmp_path / "talp", ["-runs=50", "-seed=1"])
    assert (count, error) == (50, "")
    assert (tmp_path / "talp" / "whole").is_file()
