"""A corpus in two files for the tests of the filter, and detectors of two untrained models."""

import pytest

from rela.filtering.calibration import calibrate
from tests.filtering.corpora import TRUSTED, write_corpus
from tests.tiny_models import BACK, tiny_translator


@pytest.fixture
def corpus(tmp_path):
    """41 pairs, one of them an attack, and the two files they are written to."""
    return write_corpus(tmp_path)


@pytest.fixture(scope="package")
def detectors():
    """Detectors of one model alone and of two models of opposite directions."""
    return calibrate(tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK), TRUSTED)
