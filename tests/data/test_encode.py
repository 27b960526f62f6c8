"""The passes over the text of a preparation: the sample that a vocabulary is learnt from."""

import numpy as np

from rela.data.encode import sample_lines
from rela.data.inputs import Corpus
from tests.data.parallel_text import write_pairs


def test_the_sample_is_of_the_wanted_size_and_uniform(config, tmp_path):
    write_pairs(tmp_path, "numbers", [(str(number), str(-number)) for number in range(300)])
    corpora = [Corpus("train", tmp_path / "numbers.en", tmp_path / "numbers.de", 1.0)]
    drawn = np.zeros(300)
    for seed in range(100):
        settings = config(vocabulary_sample=60, seed=seed)
        lines = [int(line) for line in sample_lines(corpora, 300, settings, lambda *call: None)]
        assert lines[::2] == [-line for line in lines[1::2]]
        assert len(set(lines[::2])) == 30 == len(lines) // 2
        drawn[lines[::2]] += 1
    # 100 draws of 30 from 300: every third of the file is drawn 1000 times, with a standard deviation below 26
    assert np.abs(drawn.reshape(3, 100).sum(1) - 1000).max() < 5 * 26
