"""The text that eflomal is shown, and the links it gives where it is installed."""

import pytest

from experiments.eflomal_links import main, normalised, tokenised
from rela.evaluation.alignment import alignment_error_rate, read_hypotheses, read_links
from rela.toy import generate, write_corpus


def test_training_text_is_split_as_gold_text_is():
    assert (
        tokenised("The Commission’s (first) report, 1.5 % of it.")
        == "The Commission 's ( first ) report , 1.5 % of it ."
    )
    assert normalised("Ich weiß , daß er „ da “ ist") == 'ich weiß , dass er " da " ist'


def test_links_of_the_test_pairs_alone_are_written(tmp_path):
    pytest.importorskip("eflomal")
    write_corpus(tmp_path, {"train": generate(400, seed=1), "gold": generate(20, seed=5)})
    names = {
        "train-source": "train.en",
        "train-target": "train.de",
        "source": "gold.en",
        "target": "gold.de",
        "out": "e",
    }
    main([word for name, file in names.items() for word in (f"--{name}", str(tmp_path / file))])
    found = read_hypotheses(tmp_path / "e.grow-diag-final-and")
    assert len(found) == 20
    assert alignment_error_rate(found, read_links(tmp_path / "gold.align")).aer < 0.5
