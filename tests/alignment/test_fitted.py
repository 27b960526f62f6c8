"""A trained aligner in a folder, and its matrices as the probabilities they are made of."""

import pytest
import torch

from rela.alignment.choose import Aligner
from rela.alignment.corpus import align_corpus, symmetrise_matrices
from rela.alignment.fitted import FITTED, FittedAligner, LinkModule, load_fitted, save_fitted, word_matrix
from rela.analysis.capture import Encoded, encode
from rela.model.folder import ModelFolderError
from tests.tiny_models import BACK, LAYERS, tiny_folder, tiny_translator, toy_pairs

PAIRS = toy_pairs(5)


def tiny_fitted(translator, layer=1):
    torch.manual_seed(3)
    return FittedAligner(translator, LinkModule(translator.config.model.width), layer)


def test_probabilities_are_a_distribution_over_source_and_null_whatever_the_batch():
    aligner = tiny_fitted(tiny_translator())
    encoded = [encode(aligner.translator, *pair, False) for pair in PAIRS]
    together = aligner.probabilities(encoded)
    for one, (source, target) in zip(together, encoded, strict=True):
        assert one.shape == (len(target.ids), len(source.ids) + 1)
        assert torch.allclose(one.sum(-1), torch.ones(len(target.ids)), atol=1e-6)
        alone = aligner.probabilities([(source, target)])[0]
        assert torch.allclose(one, alone, atol=1e-5)


def test_a_row_without_a_source_is_zero():
    source, target = Encoded([1, 2, 3], ("▁a", "b", "▁c")), Encoded([4, 5], ("▁x", "▁y"))
    probabilities = torch.tensor([[0.3, 0.3, 0.1, 0.3], [0.1, 0.1, 0.3, 0.5]])
    matrix = word_matrix(probabilities, source, target)
    assert torch.allclose(matrix, torch.tensor([[0.6, 0.1], [0.0, 0.0]])), "two subwords of a word count together"


def test_it_is_kept_in_the_folder_and_aligns_as_heads_do(tmp_path):
    translator = tiny_folder(tmp_path / "model")
    assert load_fitted(translator) is None
    aligner = tiny_fitted(translator, LAYERS)
    save_fitted(tmp_path / "model", aligner)
    loaded = load_fitted(translator)
    assert loaded is not None
    assert loaded.layer == LAYERS
    assert list(align_corpus(loaded, PAIRS)) == list(aligner.align(*zip(*PAIRS, strict=True)))
    both = list(align_corpus(loaded, PAIRS, Aligner(tiny_translator("rela-g", seed=2, languages=BACK)), "union"))
    assert all(one <= other for one, other in zip(align_corpus(loaded, PAIRS), both, strict=True))
    empty = list(align_corpus(loaded, [("", "x"), ("x", ""), PAIRS[0]]))
    assert empty == [frozenset(), frozenset(), next(align_corpus(loaded, PAIRS))]


def test_a_file_that_does_not_fit_is_refused(tmp_path):
    translator = tiny_folder(tmp_path / "model")
    save_fitted(tmp_path / "model", FittedAligner(translator, LinkModule(translator.config.model.width), LAYERS + 1))
    with pytest.raises(ModelFolderError, match="the model has layers 0 to 2"):
        load_fitted(translator)
    save_fitted(tmp_path / "model", FittedAligner(translator, LinkModule(5), 0))
    with pytest.raises(ModelFolderError, match=r"does not fit the model: key.weight is"):
        load_fitted(translator)
    large = b'{"layer": {"dtype": "F32", "shape": [2500000000], "data_offsets": [0, 10000000000]}}'
    with open(tmp_path / "model" / FITTED, "wb") as file:  # ten gigabytes, which are not read
        file.write(len(large).to_bytes(8, "little") + large)
        file.truncate(8 + len(large) + 10_000_000_000)
    with pytest.raises(ModelFolderError, match=r"does not fit the model: key.weight is None; wanted"):
        load_fitted(translator)
    (tmp_path / "model" / FITTED).write_bytes(b"no tensors")
    with pytest.raises(ModelFolderError, match="damaged"):
        load_fitted(translator)


def test_product_takes_links_that_both_directions_give_weight():
    forward = torch.tensor([[8.0, 2.0], [1.0, 1.0], [0.0, 0.0]])  # [T = 3, S = 2]; shares .8 .2, .5 .5, none
    backward = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]])  # [S = 2, T = 3]
    # Source 0, target 0: .8 · .5; source 0, target 1: .5 · .5; source 1, target 1: .5 · .1, too little.
    assert symmetrise_matrices(forward, backward, "product") == {(0, 0), (0, 1)}
