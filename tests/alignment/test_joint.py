"""A trained aligner of two models: its probabilities, its folders, and the two directions as one another's mirror."""

import pytest
import torch

from rela.alignment.corpus import align_corpus, symmetrise_matrices, two_matrices
from rela.alignment.joint import (
    JOINT,
    AlignersDiffer,
    JointAligner,
    JointModule,
    Neighbours,
    encode_sides,
    encoder_states,
    load_joint,
    save_joint,
)
from rela.alignment.punctuation import same_sort
from rela.model.folder import ModelFolderError
from tests.tiny_models import BACK, tiny_folder, tiny_joint, tiny_translator, toy_pairs

PAIRS = toy_pairs(5)


@pytest.fixture(scope="module")
def joint():
    return tiny_joint(tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK))


def test_probabilities_are_distributions_over_the_other_side_and_null_whatever_the_batch(joint):
    encoded = [encode_sides(joint.translator, joint.backward, *pair, False) for pair in PAIRS]
    for (there, back), (source, target) in zip(joint.probabilities(encoded), encoded, strict=True):
        S, T = len(source.ids), len(target.ids)
        assert (there.shape, back.shape) == ((T, S + 1), (S, T + 1))
        for one in (there, back):
            assert torch.allclose(one.sum(-1), torch.ones(len(one)), atol=1e-6)
        alone = joint.probabilities([(source, target)])[0]
        assert torch.allclose(there, alone[0], atol=1e-5)
        assert torch.allclose(back, alone[1], atol=1e-5)


def test_sides_that_are_encoded_already_have_the_same_weights(joint):
    for pair, both in zip(PAIRS, joint.two_matrices(PAIRS), strict=True):
        models = joint.translator, joint.backward
        sides = zip(models, encode_sides(*models, *pair, False), strict=True)
        memories = [encoder_states(model, [side])[0][0, : len(side.ids) + 1] for model, side in sides]
        for one, other in zip(joint.matrices_of_memories(pair, *memories), both, strict=True):
            assert torch.allclose(one, other, atol=1e-6)


def test_turned_round_it_gives_the_same_weights(joint):
    module = JointModule(joint.backward.config.model.width, joint.translator.config.model.width)
    module.source.load_state_dict(joint.module.target.state_dict())
    module.target.load_state_dict(joint.module.source.state_dict())
    module.neighbours.load_state_dict(joint.module.neighbours.state_dict())
    turned = JointAligner(joint.backward, joint.translator, module)
    other = turned.two_matrices((target, source) for source, target in PAIRS)
    for (there, back), (its_there, its_back) in zip(joint.two_matrices(PAIRS), other, strict=True):
        assert torch.allclose(there, its_back, atol=1e-6)
        assert torch.allclose(back, its_there, atol=1e-6)


def test_its_links_are_those_of_both_directions(joint):
    made = [
        same_sort(symmetrise_matrices(*both, "grow-diag-final-and"), source.split(), target.split())
        for (source, target), both in zip(PAIRS, two_matrices(joint, PAIRS, None), strict=True)
    ]
    assert list(align_corpus(joint, PAIRS)) == made
    assert any(made)
    empty = list(align_corpus(joint, [("", "x"), ("x", ""), PAIRS[0]]))
    assert empty == [frozenset(), frozenset(), made[0]]
    with pytest.warns(UserWarning, match="line 2 gets no links"):
        assert list(align_corpus(joint, [PAIRS[0], ("dog " * 200, "Hund")])) == [made[0], frozenset()]


def test_a_score_is_corrected_by_the_pairs_around_it_alone():
    """Two convolutions of 3 x 3 reach two places far; what is outside of a sentence counts as nothing."""
    torch.manual_seed(0)
    neighbours = Neighbours()
    assert not neighbours(torch.rand(1, 4, 5), torch.rand(1, 4, 5), torch.ones(1, 4, 5, dtype=torch.bool)).any()
    torch.nn.init.normal_(neighbours.second.weight)
    own, other, inside = torch.rand(1, 7, 7), torch.rand(1, 7, 7), torch.ones(1, 7, 7, dtype=torch.bool)
    before = neighbours(own, other, inside)
    own[0, 0, 0] += 1
    moved = (neighbours(own, other, inside) != before)[0]
    assert moved[:3, :3].any()
    assert not moved[3:].any()
    assert not moved[:, 3:].any()
    inside[0, :, 5:] = False
    shorter = neighbours(own[..., :5], other[..., :5], inside[..., :5])
    torch.testing.assert_close(neighbours(own, other, inside)[..., :5], shorter)


def test_an_aligner_of_an_earlier_version_has_no_neighbours(tmp_path):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    aligner = JointAligner(there, back, JointModule(24, 24, neighbours=False))
    save_joint(aligner)
    loaded = load_joint(there, back)
    assert loaded is not None
    assert loaded.module.neighbours is None
    for one, other in zip(loaded.two_matrices(PAIRS), aligner.two_matrices(PAIRS), strict=True):
        assert torch.allclose(one[0], other[0], atol=2e-3)  # kept in half precision
    save_joint(JointAligner(there, tiny_folder(tmp_path / "third", seed=3, languages=BACK), JointModule(24, 24)))
    with pytest.raises(AlignersDiffer):
        load_joint(there, back)


def test_it_is_kept_in_both_folders_and_another_one_is_refused(tmp_path):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    assert load_joint(there, back) is None
    aligner = tiny_joint(there, back)
    save_joint(aligner)
    loaded = load_joint(there, back)
    assert loaded is not None
    for (one, other), (its_one, its_other) in zip(aligner.two_matrices(PAIRS), loaded.two_matrices(PAIRS), strict=True):
        assert torch.allclose(one, its_one, atol=0.01), "kept in half precision"
        assert torch.allclose(other, its_other, atol=0.01)
    assert load_joint(back, there) is not None
    save_joint(JointAligner(there, tiny_folder(tmp_path / "third", seed=3, languages=BACK), JointModule(24, 24)))
    with pytest.raises(AlignersDiffer, match="are not of one training"):
        load_joint(there, back)
    save_joint(JointAligner(there, back, JointModule(24, 24, size=5)))
    with pytest.raises(ModelFolderError, match=r"does not fit the model: source.bias is"):
        load_joint(there, back)
    save_joint(aligner)
    (tmp_path / "back" / JOINT).write_bytes(b"no tensors")
    with pytest.raises(ModelFolderError, match="damaged"):
        load_joint(there, back)
