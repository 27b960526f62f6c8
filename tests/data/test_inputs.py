"""The text files of a preparation: when they count as the same."""

from rela.data.prepare import prepare


def test_text_that_was_only_moved_or_touched_is_the_same_text(config, tmp_path):
    settings = config()
    prepare(settings)
    for suffix in ("en", "de"):
        path = tmp_path / f"train.{suffix}"
        path.write_bytes(path.read_bytes())
    assert prepare(settings).reused
    (tmp_path / "train.en").unlink()
    assert prepare(settings).reused
