"""One figure alone: drawn from what it needs, and refused where that is missing."""

import pytest

from rela.report.parallel_text import ParallelText
from rela.report.pictures import Selection
from rela.report.plot import plot_figure
from tests.tiny_models import tiny_translator, toy_pairs


def test_a_single_pair_is_enough_for_its_heads():
    text = ParallelText(toy_pairs(1))
    assert "layer 1, head 2" in plot_figure("heads", {"m": tiny_translator()}, text, Selection(heads=(2,))).get_title()


def test_what_is_missing_is_said():
    text, model = ParallelText([*toy_pairs(2), ("dog", " ")]), tiny_translator()
    for key, models, selection, message in [
        ("pie", {"m": model}, None, "there is no figure 'pie'; wanted one of sparsity, aer"),
        ("aer", {"m": model}, None, "the figure aer needs gold links"),
        ("heads", {"a": model, "b": model}, None, "this figure shows one model; 2 were given"),
        ("heads", {"m": model}, Selection(line=4), "line 4 of a text of 3 lines"),
        ("heads", {"m": model}, Selection(line=3), "line 3 is empty on one side"),
        ("heads", {"m": model}, Selection(type="both"), "attention type is 'both'"),
        ("heads", {"m": model}, Selection(layer=3), "layer 3 of a model with 2"),
        ("heads", {"m": model}, Selection(heads=(1, 0)), "head 0 of a model with 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            plot_figure(key, models, text, selection)
