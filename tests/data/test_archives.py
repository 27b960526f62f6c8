"""Archives: only what is wanted is unpacked, and no file outside the folder."""

import io
import tarfile
import zipfile

import pytest

from rela.data.archives import unpack
from rela.data.download import DownloadError
from tests.data.local_server import names


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


@pytest.mark.parametrize("length", range(3, 14))
def test_a_gzip_header_cut_short_is_one_line(tmp_path, length):
    """With the flags set that announce an extra field, a name and a comment behind it."""
    archive = tmp_path / "short.tgz"
    archive.write_bytes(b"\x1f\x8b\x08\x1c\0\0\0\0\0\0\x02\0ab"[:length])
    with pytest.raises(DownloadError, match=r"short\.tgz cannot be unpacked"):
        unpack(archive, ["a.txt"], tmp_path / "inside")


def test_a_zip_whose_name_is_not_the_utf8_it_is_marked_as_is_one_line(tmp_path):
    archive = tmp_path / "odd.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("ä/a.txt", "a")
    archive.write_bytes(archive.read_bytes().replace("ä".encode(), b"\xf7\xf7", 1))  # before the data, not in the list
    with pytest.raises(DownloadError, match=r"odd\.zip cannot be unpacked"):
        unpack(archive, ["a.txt"], tmp_path / "inside")


def test_a_zip_whose_offsets_lie_before_it_is_one_line(tmp_path):
    archive = tmp_path / "short.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("first.txt", "x" * 2000)
        zipped.writestr("a.txt", "a")
    archive.write_bytes(archive.read_bytes()[1900:])  # the directory at the end is whole
    with pytest.raises(DownloadError, match=r"short\.zip cannot be unpacked"):
        unpack(archive, ["first.txt"], tmp_path / "inside")
