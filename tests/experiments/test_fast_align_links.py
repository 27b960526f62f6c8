"""The links fast_align gives where it is installed."""

import shutil

import pytest

from experiments.fast_align_links import main
from rela.evaluation.alignment import alignment_error_rate, read_hypotheses, read_links
from rela.toy import generate, write_corpus

NAMES = {
    "train-source": "train.en",
    "train-target": "train.de",
    "source": "gold.en",
    "target": "gold.de",
    "out": "f",
}


def test_links_of_the_test_pairs_alone_are_written(tmp_path):
    program = shutil.which("fast_align")
    if program is None:
        pytest.skip("fast_align is not installed")
    write_corpus(tmp_path, {"train": generate(400, seed=1), "gold": generate(20, seed=5)})
    files = [word for name, file in NAMES.items() for word in (f"--{name}", str(tmp_path / file))]
    main(["--program", program, *files])
    found = read_hypotheses(tmp_path / "f.grow-diag-final-and")
    assert len(found) == 20
    assert alignment_error_rate(found, read_links(tmp_path / "gold.align")).aer < 0.5


def test_a_program_that_is_not_there_is_named(tmp_path):
    files = [word for name, file in NAMES.items() for word in (f"--{name}", str(tmp_path / file))]
    with pytest.raises(SystemExit, match="wanted the program fast_align"):
        main(["--program", str(tmp_path / "none"), *files])
