"""COMET is an extra: without it, one line says which."""

import importlib.util

import pytest

from rela.evaluation.comet import comet


@pytest.mark.skipif(importlib.util.find_spec("comet") is not None, reason="the extra is installed")
def test_without_the_extra_a_line_names_it():
    with pytest.raises(ImportError, match=r"pip install 'rela-attention\[comet\]'"):
        comet(["a"], ["b"], ["c"])


def test_texts_of_other_lengths_are_refused_before_anything_is_loaded():
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        comet(["a"], ["b", "c"], ["d"])
