"""Downloads that break, end early or lie, against a real server on this machine; archives that mean harm."""

import gzip
import hashlib
import http.server
import io
import socket
import tarfile
import threading
import zipfile

import pytest

from rela.config import CorpusConfig
from rela.data import datasets
from rela.data.corpus import CorpusError, read_pairs
from rela.data.datasets import ARCHIVES, DATASETS, Archive, Dataset, Part, get_dataset, list_datasets, unpack
from rela.data.download import DownloadError, download

CONTENT = bytes(range(256)) * 2000  # larger than what a socket takes at once
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; each request first takes the next item of `faults`, if there is one."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.ranges: list[str | None] = []
        self.etags = True

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server: Server = self.server
        server.ranges.append(self.headers.get("Range"))
        fault = server.faults.pop(0) if server.faults else ""
        if fault.isdigit():
            return self.send_error(int(fault))
        if self.path[1:] not in server.files:
            return self.send_error(404)
        data = server.files[self.path[1:]]
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        start = 0
        wanted = self.headers.get("Range")
        if wanted and fault != "no range" and self.headers.get("If-Range", tag) == tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.end_headers()
                return None
            self.send_response(206)
            start = 0 if fault == "wrong range" else start
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if server.etags:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if fault == "break":
            body = body[: len(body) // 3]
        if fault == "nothing":
            body = b""
        self.wfile.write(body)
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.files["file.bin"] = CONTENT
        yield server
        server.shutdown()
        thread.join()


def fetch(server, path, sha256=SHA256, **options):
    return download(server.url("file.bin"), path, sha256, **{"pause": 0.0} | options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


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


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return out.getvalue()


@pytest.fixture
def known(server, monkeypatch):
    """A dataset on the local server: a tar with SGML, a zip with IWSLT markup and two plain gz files."""
    sgml = {
        f"dev/news-{side}.sgm": f'<doc>\n<p>\n<seg id="1"> {word} &amp; {word} </seg>\n</p>\n'
        f'<seg id="2">{word}</seg>\n</doc>\n'.encode()
        for side, word in (("src", "eins"), ("ref", "one"))
    }
    tags = {
        f"de-en/train.tags.de-en.{side}": f"<url>http://x</url>\n<title>t</title>\n {word} \n{word} 2\n".encode()
        for side, word in (("de", "zwei"), ("en", "two"))
    }
    contents = {
        "dev.tgz": tar_of(sgml),
        "iwslt.zip": zip_of(tags),
        "a.de.gz": gzip.compress(b"drei\nvier\n"),
        "a.en.gz": gzip.compress(b"three\nfour\n"),
    }
    server.files.update(contents)
    for name in contents:
        monkeypatch.setitem(ARCHIVES, name, Archive(server.url(name)))
    parts = (
        Part("train.iwslt", ("iwslt.zip:train.tags.de-en.de",), ("iwslt.zip:train.tags.de-en.en",)),
        Part("train.plain", ("a.de.gz:",), ("a.en.gz:",)),
        Part("test", ("dev.tgz:dev/news-src.sgm",), ("dev.tgz:dev/news-ref.sgm",)),
    )
    dataset = Dataset("small", ("de", "en"), parts, "https://example.org", "nobody")
    monkeypatch.setitem(DATASETS, "small", dataset)
    return dataset


def test_a_dataset_becomes_plain_parallel_text(server, known, tmp_path):
    files = get_dataset("small", tmp_path, pause=0)
    assert [str(path.relative_to(tmp_path)) for path in files] == [
        f"small/{part}.{side}" for part in ("train.iwslt", "train.plain", "test") for side in ("de", "en")
    ]
    pairs = [list(read_pairs(*files[i : i + 2], "raise")) for i in (0, 2, 4)]
    assert pairs == [
        [("zwei", "two"), ("zwei 2", "two 2")],
        [("drei", "three"), ("vier", "four")],
        [("eins & eins", "one & one"), ("eins", "one")],
    ]
    requests = len(server.ranges)
    assert get_dataset("small", tmp_path) == files
    assert len(server.ranges) == requests
    assert not [path for path in (tmp_path / "small").iterdir() if path.name.startswith(".")]


def test_a_dataset_whose_download_breaks_is_finished_by_the_next_command(server, known, tmp_path):
    server.faults = ["", "break", "nothing"]
    with pytest.raises(DownloadError, match="run the command again"):
        get_dataset("small", tmp_path, attempts=1, pause=0)
    assert names(tmp_path / "small") == ["train.iwslt.de", "train.iwslt.en"]
    server.faults = []
    assert len(get_dataset("small", tmp_path)) == 6


def test_a_dataset_with_unequal_sides_or_a_missing_member_is_refused(server, known, tmp_path):
    server.files["a.en.gz"] = gzip.compress(b"three\n")
    with pytest.raises(DownloadError, match=r"train\.plain: 2 lines on one side, 1 on the other"):
        get_dataset("small", tmp_path)
    server.files["dev.tgz"] = tar_of({"dev/news-src.sgm": b"<seg>x</seg>\n"})
    server.files["a.en.gz"] = gzip.compress(b"three\nfour\n")
    for path in (tmp_path / "downloads").glob("a.en.gz/*"):
        path.unlink()
    with pytest.raises(DownloadError, match=r"dev\.tgz holds no dev/news-ref\.sgm"):
        get_dataset("small", tmp_path)
    assert not [name for name in names(tmp_path / "small") if name.startswith("test")]


def test_a_truncated_archive_is_refused(server, known, tmp_path):
    server.files["dev.tgz"] = server.files["dev.tgz"][:-30]
    with pytest.raises(DownloadError, match=r"dev\.tgz cannot be unpacked"):
        get_dataset("small", tmp_path)
    server.files["a.de.gz"] = server.files["a.de.gz"][:-6]
    with pytest.raises(CorpusError, match=r"a\.de\.gz, line \d: "):
        get_dataset("small", tmp_path / "other")


def test_no_archive_writes_outside_its_folder(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in ("../evil.txt", "/evil.txt", "x/../../evil.txt"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    archive = tmp_path / "evil.tgz"
    archive.write_bytes(out.getvalue())
    found = unpack(archive, ["evil.txt"], tmp_path / "inside")
    assert found["evil.txt"].is_relative_to(tmp_path / "inside")
    assert names(tmp_path) == ["evil.tgz", "inside"]
    with pytest.raises(DownloadError, match=r"holds no link\.txt"):
        unpack(archive, ["link.txt"], tmp_path / "links")


def test_the_table_is_sound():
    for dataset in list_datasets():
        assert DATASETS[dataset.name] is dataset
        assert dataset.name in str(dataset)
        assert {part.name.partition(".")[0] for part in dataset.parts} == {"train", "valid", "test"}
        for part in dataset.parts:
            assert len(part.source) == len(part.target)
            for references, language in zip((part.source, part.target), dataset.languages, strict=True):
                for reference in references:
                    archive, _, member = reference.partition(":")
                    url = ARCHIVES[archive].url
                    # each side names its own language at the end of its file
                    assert language in (member or url.rpartition("/")[2]).split(".")[-3:]
                    assert url.startswith("https://")
    for archive in ARCHIVES.values():
        assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32
    used = {ref.partition(":")[0] for d in list_datasets() for p in d.parts for ref in (*p.source, *p.target)}
    assert used == set(ARCHIVES)


def test_an_unknown_name_names_the_known_ones(tmp_path):
    with pytest.raises(DownloadError, match=r"no dataset 'wmt99'; known are wmt14-en-de, .*mtdata:ID"):
        get_dataset("wmt99", tmp_path)


def test_mtdata_is_asked_for_only_when_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match=r"needs the mtdata package: pip install 'rela-attention\[datasets\]'"):
        get_dataset("mtdata:Statmt-europarl-7-deu-eng", tmp_path)


def test_mtdata_is_called_as_its_manual_says(tmp_path, monkeypatch):
    """A stand-in for the package that accepts exactly the documented command line."""
    (tmp_path / "mtdata.py").write_text(
        "import argparse, pathlib\n"
        "parser = argparse.ArgumentParser()\n"
        "get = parser.add_subparsers(required=True).add_parser('get')\n"
        "get.add_argument('-l', '--langs', required=True)\n"
        "get.add_argument('-tr', '--train', nargs='*')\n"
        "get.add_argument('-o', '--out', type=pathlib.Path)\n"
        "options = parser.parse_args()\n"
        "if 'absent' in options.train[0]: raise SystemExit('no such dataset')\n"
        "(options.out / 'train-parts').mkdir(parents=True)\n"
        "for language in options.langs.split('-'):\n"
        "    (options.out / 'train-parts' / f'{options.train[0]}.{language}').write_text('x\\n')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    files = get_dataset("mtdata:Statmt-europarl-7-deu-eng", tmp_path / "out")
    assert [path.name for path in files] == ["Statmt-europarl-7-deu-eng.deu", "Statmt-europarl-7-deu-eng.eng"]
    assert CorpusConfig(*map(str, files)).weight == 1.0
    with pytest.raises(DownloadError, match=r"could not get Statmt-absent-7-deu-eng: no such dataset"):
        get_dataset("mtdata:Statmt-absent-7-deu-eng", tmp_path / "out")
    with pytest.raises(DownloadError, match="wanted Group-name-version-language-language"):
        get_dataset("mtdata:europarl", tmp_path / "out")
