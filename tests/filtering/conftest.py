"""A corpus in two files for the tests of the filter."""

import pytest

from tests.filtering.corpora import write_corpus


@pytest.fixture
def corpus(tmp_path):
    """41 pairs, one of them an attack, and the two files they are written to."""
    return write_corpus(tmp_path)
