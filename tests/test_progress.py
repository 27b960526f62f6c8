"""Progress that nobody wants to hear."""

from rela.progress import no_progress


def test_nothing_is_said(capsys):
    assert no_progress("read", 1, None) is None
    assert capsys.readouterr() == ("", "")
