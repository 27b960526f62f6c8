"""Downloads are resumed, checked, and whole or absent, whatever the server does."""

import hashlib
import socket

import pytest

from rela.data.download import DownloadError, download
from tests.data.local_server import CONTENT, names

SHA256 = hashlib.sha256(CONTENT).hexdigest()


def fetch(server, path, sha256=SHA256, **options):
    return download(server.url("file.bin"), path, sha256, **{"pause": 0.0} | options)


def test_a_file_arrives_and_is_not_fetched_twice(server, tmp_path):
    calls = []
    path = fetch(server, tmp_path / "file.bin", progress=lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert calls[-1] == ("downloading file.bin", len(CONTENT), len(CONTENT))
    fetch(server, path)
    assert len(server.ranges) == 1
    assert names(tmp_path) == ["file.bin", "file.bin.sha256"]


@pytest.mark.parametrize("etags", [True, False])
def test_a_connection_that_breaks_is_taken_up_where_it_broke(server, tmp_path, etags):
    server.etags = etags
    server.faults = ["break", "break"]
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT
    third = len(CONTENT) // 3
    assert server.ranges == [None, f"bytes={third}-", f"bytes={third + (len(CONTENT) - third) // 3}-"]


def test_a_truncated_download_is_an_error_and_the_next_command_goes_on(server, tmp_path):
    path = tmp_path / "file.bin"
    server.faults = ["break", "nothing", "nothing", "nothing"]
    with pytest.raises(DownloadError, match=r"broke after 170,666 of 512,000 bytes; 170,666 bytes are kept, run the"):
        fetch(server, path, attempts=3)
    assert not path.exists()
    assert fetch(server, path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=170666-"
    assert names(tmp_path) == ["file.bin", "file.bin.sha256"]


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.faults = ["break", "no range"]
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_sends_another_range_is_not_believed(server, tmp_path):
    server.faults = ["break", "wrong range"]
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT
    assert len(server.ranges) == 3


def test_a_file_that_changes_between_attempts_is_not_pieced_together(server, tmp_path):
    path = tmp_path / "file.bin"
    server.faults = ["break", "nothing"]
    with pytest.raises(DownloadError):
        fetch(server, path, None, attempts=1)
    server.faults = []
    server.files["file.bin"] = CONTENT[::-1]
    assert fetch(server, path, None).read_bytes() == CONTENT[::-1]


def test_a_complete_part_that_was_only_not_renamed_is_used(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_wrong_bytes_are_refused_and_leave_nothing(server, tmp_path):
    server.files["file.bin"] = CONTENT[:-1] + b"!"
    with pytest.raises(DownloadError, match=rf"gave a file with SHA-256 \w{{64}}; wanted {SHA256}"):
        fetch(server, tmp_path / "file.bin")
    assert [name for name in names(tmp_path) if not name.endswith(".tag")] == []
    server.files["file.bin"] = CONTENT
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_an_unknown_checksum_is_noted_and_held_to(server, tmp_path):
    path = fetch(server, tmp_path / "file.bin", None)
    assert (tmp_path / "file.bin.sha256").read_text() == f"{SHA256}  file.bin\n"
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match=r"file\.bin is not the file it was"):
        fetch(server, path, None)
    path.unlink()
    server.files["file.bin"] = b"other"
    with pytest.raises(DownloadError, match=f"wanted {SHA256}"):
        fetch(server, path, None)


def test_errors_of_the_server(server, tmp_path):
    with pytest.raises(DownloadError, match=r"absent: 404 Not Found$"):
        download(server.url("absent"), tmp_path / "absent", pause=0)
    assert len(server.ranges) == 1  # what is not there is not asked for again
    server.faults = ["503", "500"]
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT
    server.faults = ["503", "503"]
    with pytest.raises(DownloadError, match=r"503 Service Unavailable$"):
        fetch(server, tmp_path / "again.bin", attempts=2)


def test_offline_is_said_in_one_line(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
    with pytest.raises(DownloadError, match=r"no connection \(.*\); are you offline\?$"):
        download(url, tmp_path / "x", attempts=2, pause=0)
    with pytest.raises(DownloadError, match="is no http or https address"):
        download("file:///etc/hostname", tmp_path / "x")
    assert names(tmp_path) == []
