"""Files and folders are replaced whole or not at all, and nothing is left beside them."""

import os

import pytest

from rela.files import lock, replacing, replacing_folder, write_bytes, write_text


def test_text_and_bytes_replace_what_was_there(tmp_path):
    write_text(tmp_path / "a", "Füße\n")
    write_text(tmp_path / "a", "ja\n")
    write_bytes(str(tmp_path / "b"), b"\0")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"ja\n", "b": b"\0"}


def test_a_file_that_fails_leaves_the_old_one(tmp_path):
    write_text(tmp_path / "a", "old")

    def fail() -> None:
        with replacing(tmp_path / "a") as partial:
            partial.write_text("half")
            assert (tmp_path / "a").read_text() == "old"
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


@pytest.mark.parametrize("before", [None, "old"])
def test_a_folder_takes_the_place_of_the_old_one(tmp_path, before):
    path = tmp_path / "model"
    if before:
        path.mkdir()
        (path / "gone").write_text(before)
    with replacing_folder(path) as fresh:
        (fresh / "weights").write_text("new")
        assert path.exists() == bool(before)
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
    assert [item.name for item in path.iterdir()] == ["weights"]


def test_a_folder_that_fails_leaves_the_old_one_and_forgets_what_a_killed_process_left(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "weights").write_text("old")
    leftover = tmp_path / f".model.{os.getpid()}.new"
    leftover.mkdir()
    (leftover / "half").write_text("half")

    def fail() -> None:
        with replacing_folder(path) as fresh:
            assert list(fresh.iterdir()) == []
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
    assert (path / "weights").read_text() == "old"


def test_a_lock_is_held_once(tmp_path):
    pytest.importorskip("fcntl")
    with open(tmp_path / "a", "w") as one, open(tmp_path / "a") as two:
        lock(one.fileno(), "busy")
        with pytest.raises(ValueError, match="busy"):
            lock(two.fileno(), "busy")
