"""Damaged and hostile files: each is read, or refused in one line that names it. No other exception may come out.

`make test` tries some of them; the campaign tries RELA_EXECUTIONS of each, from RELA_SEED.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzzing import KINDS, PARTS, TARGETS, Edit

pytest.importorskip("zstandard")  # not on every GPU machine, where these files are collected, too

EXECUTIONS = int(os.environ.get("RELA_EXECUTIONS", "5000"))
SEED = int(os.environ.get("RELA_SEED", "1"))
SHORT = 15


def edits_with(pieces: list[bytes]) -> st.SearchStrategy[list[Edit]]:
    insert = st.one_of(st.sampled_from(pieces), st.binary(min_size=1, max_size=8))
    where = st.floats(0, 1, allow_nan=False)
    return st.lists(st.tuples(st.sampled_from(KINDS), where, where, insert), min_size=1, max_size=6)


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path, name):
    target = TARGETS[name](tmp_path)
    target.attempt([])

    @settings(max_examples=SHORT, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(edits_with(target.pieces))
    def attempt(edits: list[Edit]) -> None:
        target.attempt(edits)

    attempt()


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)  # takes no room on the disk


@pytest.mark.parametrize("name", PARTS)
def test_a_file_in_a_folder_that_has_no_end_is_refused(tmp_path, name):
    target = PARTS[name](tmp_path)
    target.attempt([])
    for put in (link_to_a_device, large_file, os.mkfifo):
        target.path.unlink()
        put(target.path)
        message = target.refuse()
        assert "\n" not in message
        assert target.path.name in message


@pytest.mark.campaign
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files_are_read_or_refused_in_one_line(tmp_path, name):
    _, errors = TARGETS[name](tmp_path).attack(EXECUTIONS, SEED)
    assert not errors, "\n".join(errors)
    print(f"\n{name}: {EXECUTIONS} executions")
