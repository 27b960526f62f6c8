"""Files and folders are replaced whole or not at all, and nothing is left beside them."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rela import files
from rela.files import (
    exchange,
    final_name,
    held,
    is_written_into,
    lock,
    read_bytes,
    read_json,
    read_part,
    read_text,
    remove_leftovers,
    replacing,
    replacing_folder,
    write_bytes,
    write_text,
)
from tests.killing import killer


def dead_process() -> int:
    """The number of a process that was there and has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


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


def test_a_link_to_a_file_stays_one_and_its_file_keeps_its_mode(tmp_path):
    (tmp_path / "far").mkdir()
    real, link, dangling = tmp_path / "far" / "real", tmp_path / "link", tmp_path / "dangling"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("far/real")
    dangling.symlink_to("far/later")
    for path in (link, dangling):
        write_text(path, "new")
        assert path.is_symlink()
        assert path.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.rglob("*")} == {"far", "real", "later", "link", "dangling"}


def test_what_is_read_as_a_whole_has_an_end_and_is_utf8(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\n")
    (tmp_path / "b").write_bytes(b"\xff\n")
    assert (read_text(tmp_path / "a"), read_bytes(tmp_path / "b")) == ("a\n", b"\xff\n")
    with pytest.raises(ValueError, match="b is not UTF-8"):
        read_text(tmp_path / "b")
    with pytest.raises(ValueError, match="/dev/zero is over 1 MiB; wanted a smaller file"):
        read_bytes("/dev/zero")


def test_a_part_of_a_folder_is_a_regular_file_of_some_size(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"12345")
    assert read_part(path, 5) == b"12345"
    with pytest.raises(ValueError, match="part is over 0 MiB"):
        read_part(path, 4)
    (tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(ValueError, match=f"{name} is a device or a pipe; wanted a regular file"):
            read_part(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_part(tmp_path)
    path.write_text("[1, NaN", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 column 8"):
        read_json(path)


def test_links_that_lead_to_one_another_stay(tmp_path):
    for name, other in (("a", "b"), ("b", "a"), ("self", "self")):
        (tmp_path / name).symlink_to(other)
    for name in ("a", "self"):
        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            write_text(tmp_path / name, "text")
        with pytest.raises(OSError, match="Too many levels of symbolic links"), replacing_folder(tmp_path / name):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "self"]
    assert all(path.is_symlink() for path in tmp_path.iterdir())


def test_what_is_no_regular_file_is_written_into(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_text(pipe, "through the pipe")
        assert reader.communicate(timeout=60)[0] == b"through the pipe"
    assert pipe.is_fifo()
    write_text(os.devnull, "away")
    assert not Path(os.devnull).is_file()
    assert is_written_into("/dev/stdout"), "a pipe, a terminal or a file that somebody else opened"
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    assert not is_written_into(tmp_path)
    assert not is_written_into(tmp_path / "new")
    (tmp_path / "old").write_text("text")
    with open(tmp_path / "old", "a") as file:
        assert is_written_into(f"/proc/self/fd/{file.fileno()}"), "by another name it is a file of its own"
    assert not is_written_into(tmp_path / "old")


def test_a_temporary_name_is_told_by_the_name_it_is_to_become(tmp_path):
    with replacing(tmp_path / "a.txt") as partial:
        assert final_name(partial) == tmp_path / "a.txt"
        partial.write_text("text")
    assert final_name("a.txt") == Path("a.txt")
    with replacing_folder(tmp_path / "model") as fresh:
        assert final_name(fresh / "weights") == tmp_path / "model" / "weights"


def test_on_a_full_disk_the_error_names_what_was_written(tmp_path):
    """A limit on the size of files fails as a full disk does, without a name."""
    (tmp_path / "text").write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/text'"):
            write_text(tmp_path / "text", "x" * 200)
        with (
            pytest.raises(OSError, match=r"File too large: '.*/folder'"),
            replacing_folder(tmp_path / "folder") as fresh,
        ):
            (fresh / "text").write_text("x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "text").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


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


def leave(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "weights").write_text("half")
    return folder / name


def test_what_killed_processes_left_goes_and_what_live_ones_write_stays(tmp_path):
    pytest.importorskip("fcntl")
    dead = dead_process()
    leave(tmp_path, f".model.{dead}.new")
    leave(tmp_path, f".model.{dead}.old")
    leave(tmp_path, "model")
    (tmp_path / f".log.{dead}.part").write_text("half")
    (tmp_path / f".a\nb.{dead}.part").write_text("half")
    foreign = [".bashrc", ".model.backup", ".log.1999", f".{dead}.new"]
    for name in foreign:
        (tmp_path / name).write_text("not ours")
    living = leave(tmp_path, f".best.{os.getppid()}.new")
    locked = leave(tmp_path, f".last.{dead}.new")  # of a process in another container, where its number is another's
    with held(locked, os.O_RDONLY):
        remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*foreign, "model", living.name, locked.name}
    remove_leftovers(tmp_path)
    assert not locked.exists(), "its process has ended"


def test_leftovers_of_other_names_are_left_to_those_who_write_them(tmp_path):
    other = leave(tmp_path, f".other.{dead_process()}.new")
    with replacing_folder(tmp_path / "model"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"model", other.name}


def test_an_old_folder_without_successor_gets_its_name_back(tmp_path):
    leave(tmp_path, f".model.{dead_process()}.old")
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_link_to_a_folder_stays_one(tmp_path):
    leave(tmp_path, "real")
    (tmp_path / "link").symlink_to("real")
    with replacing_folder(tmp_path / "link") as fresh:
        (fresh / "weights").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "weights").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"link", "real"}


@pytest.mark.parametrize("can_exchange", [True, False])
def test_folders_are_exchanged_or_moved_one_after_the_other(tmp_path, monkeypatch, can_exchange):
    if can_exchange:
        leave(tmp_path, "a"), leave(tmp_path, "b")
        if not exchange(tmp_path / "a", tmp_path / "b"):
            pytest.skip("this file system cannot exchange names")
    else:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    leave(tmp_path, "model")
    with replacing_folder(tmp_path / "model") as fresh:
        (fresh / "weights").write_text("new")
    assert (tmp_path / "model" / "weights").read_text() == "new"
    assert not list(tmp_path.glob(".*"))


def replace_contents(path: str) -> None:
    with replacing_folder(path) as fresh:
        for name in ("weights", "config"):
            (fresh / name).write_text("new")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere two renames are needed")
def test_a_folder_that_is_being_replaced_is_whole_wherever_the_process_is_killed(tmp_path):
    path = tmp_path / "model"
    old, new = (dict.fromkeys(("weights", "config"), text) for text in ("old", "new"))
    found = []
    with killer(tmp_path, __name__) as process:
        for event in range(1, 100):
            with replacing_folder(path) as fresh:
                for name, text in old.items():
                    (fresh / name).write_text(text)
            ended = process.call(f"{__name__}:replace_contents", str(path), event=event)
            found.append({file.name: file.read_text() for file in path.iterdir()})
            if not ended.killed:
                break
            remove_leftovers(tmp_path)
            assert [item.name for item in tmp_path.iterdir()] == ["model"]
    assert ended.status == 0, ended.errors
    assert found[-1] == new
    assert all(contents in (old, new) for contents in found)
    assert found.count(old) >= 5, "there are several events at which it was killed"
    assert found.count(new) >= 3, "also after the exchange"
