"""Views of one or several models."""

import pytest

from rela.explorer.views import Views

pytest.importorskip("fastapi")


def test_there_must_be_a_model():
    with pytest.raises(ValueError, match="at least one"):
        Views({})
