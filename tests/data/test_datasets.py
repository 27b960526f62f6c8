"""Public corpora: from their archives to plain parallel text."""

import gzip
import io
import tarfile
import zipfile

import pytest

from rela.config import CorpusConfig
from rela.data import datasets
from rela.data.corpus import CorpusError, read_pairs
from rela.data.datasets import get_dataset
from rela.data.download import DownloadError
from rela.data.known_datasets import ARCHIVES, DATASETS, Archive, Dataset, Part
from tests.data.local_server import names


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
