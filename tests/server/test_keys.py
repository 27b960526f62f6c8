"""Keys are read one a line, and only whole ones are known."""

import pytest

from rela.server.keys import is_known, read_keys


def test_keys_are_read_one_a_line(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\n one \n\ntwo é\n#three\n", encoding="utf-8")
    assert read_keys(file) == {"one", "two é"}
    file.write_text("# none\n\n")
    with pytest.raises(ValueError, match="holds no key"):
        read_keys(file)
    with pytest.raises(FileNotFoundError):
        read_keys(tmp_path / "missing")


def test_only_a_whole_key_is_known():
    keys = {"one", "two é"}
    assert all(is_known(key, keys) for key in keys)
    assert not any(is_known(key, keys) for key in ("", "on", "one ", "One", "two e", "\ud800"))
    assert not is_known("", set())
