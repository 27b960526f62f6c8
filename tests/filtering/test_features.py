"""What a model sees in a pair: agrees with the measures it is made of, and does not depend on the pairs beside it."""

import numpy as np
import pytest
import torch

from rela.analysis.capture import capture
from rela.analysis.nulls import null_rate
from rela.errors import RunFailed
from rela.filtering.features import feature_names, in_source, make_view, repeated, unexplained, view_pairs
from rela.filtering.pair_scores import score_pairs
from tests.tiny_models import HEADS, LAYERS, tiny_translator, toy_pairs

PAIRS = toy_pairs(7)


def views(pairs, reference="The dog is sleeping ."):
    translator = tiny_translator()
    ids = [translator.encode_pair(*pair) for pair in pairs]
    return view_pairs(translator, ids, translator.subwords.encode(reference))


def test_null_rates_and_log_probabilities_are_those_of_the_measures():
    for view, pair, score in zip(views(PAIRS), PAIRS, score_pairs(tiny_translator(), PAIRS), strict=True):
        (record,) = capture(tiny_translator(), [pair], ("cross",))
        assert view.null == pytest.approx(null_rate(record["cross"]).numpy())
        assert view.null_rate == pytest.approx(score.null_rate)
        assert view.log_prob == pytest.approx(score.log_prob, abs=1e-6)
        assert len(view.features) == len(feature_names(LAYERS, HEADS))
        assert np.isfinite(view.features).all()


def test_a_view_does_not_depend_on_the_pairs_beside_it():
    together = views(PAIRS)
    for view, pair in zip(together, PAIRS, strict=True):
        assert views([pair])[0].features == pytest.approx(view.features, abs=1e-5)


def test_the_source_is_encoded_as_alone():
    translator = tiny_translator()
    for view, (source, _) in zip(views(PAIRS), PAIRS, strict=True):
        batch = translator.pack_evenly([(translator.subwords.encode(source), [])])
        alone = translator.model.encode(batch.source, batch.source_positions, batch.source_packing)
        assert len(view.memory) == len(translator.subwords.encode(source)) + 1
        assert torch.allclose(view.memory, alone[: len(view.memory)], atol=1e-5)


def test_with_its_own_source_as_reference_a_target_has_no_contrast():
    source, target = PAIRS[0]
    assert views([(source, target)], source)[0].contrast == pytest.approx(0, abs=1e-6)
    assert views([(source, target)])[0].contrast != pytest.approx(0, abs=1e-4)


def test_attention_by_hand():
    """One layer of two heads, two target subwords and </s>, three source subwords and </s>."""
    weights = torch.zeros(1, 2, 3, 4)
    weights[0, 0, 0, 0] = weights[0, 0, 1, 0] = 5.0  # the first head looks at the first subword, and at </s> at the end
    weights[0, 0, 2, 3] = 1.0
    weights[0, 1, 0, 1] = weights[0, 1, 0, 3] = 2.0  # the second: half at the second, half at </s>, then at nothing
    log_probs = np.array([-1.0, -2.0, -3.0])
    view = make_view(weights, log_probs, log_probs - 1.0, [5, 6, 7], [8, 8], torch.zeros(4, 2))
    found = dict(zip(feature_names(1, 2), view.features, strict=True))
    assert view.null.tolist() == [[0.0, pytest.approx(2 / 3)]]
    assert view.null_rows.tolist() == [0.0, 0.5, 0.5]
    assert view.coverage.tolist() == [[1.0, 0.25, 0.0]]
    assert found["unseen 1"] == pytest.approx(1 / 3)
    assert found["crowded 1"] == 0.0
    assert found["end 1"] == pytest.approx((0.25 + 0 + 0.5) / 3)
    assert (found["contrast"], found["log_prob"], found["worst_log_prob"]) == (1.0, -2.0, -3.0)
    assert found["worst_contrast"] == 1.0
    assert found["explained"] == pytest.approx(1 / 3), "of −3 with the reference, 1 is explained"
    assert (found["longer"], found["shorter"]) == (0.0, pytest.approx(np.log(4 / 3)))


def test_the_least_explained_run_of_subwords_is_found():
    plain = np.full(9, -5.0)
    explained, inserted = np.full(9, -1.0), np.full(9, -1.0)
    inserted[3:7] = -5.0  # four subwords that the source makes no more probable
    assert unexplained(explained, plain) == 0.0
    assert unexplained(inserted, plain) == pytest.approx(np.log1p(4 * 0.4 * 5.0))
    assert unexplained(inserted[:5], plain[:5]) == pytest.approx(np.log1p(2 * 0.4 * 5.0)), "it grows with the run"
    assert unexplained(plain[:0], plain[:0]) == 0.0


def test_repetition_and_copies_are_counted():
    assert repeated([1, 2, 3, 4]) == 0.0
    assert repeated([1, 2, 1, 2, 1, 2]) == pytest.approx(1 - 2 / 5)
    assert repeated([]) == repeated([1]) == 0.0
    assert in_source([1, 2, 3], [3, 4, 1, 1]) == 0.5
    assert in_source([1], []) == 0.0
    translator = tiny_translator()
    ids = translator.subwords.encode(PAIRS[0][0])
    (view,) = view_pairs(translator, [(ids, ids)], ids)
    found = dict(zip(feature_names(LAYERS, HEADS), view.features, strict=True))
    assert (found["shared"], found["copied"], found["longer"], found["shorter"]) == (0.5, 0.5, 0.0, 0.0)


def test_numbers_that_are_none_are_refused(monkeypatch):
    """Finite weights whose products overflow: the score of a pair would be NaN."""
    translator = tiny_translator(seed=3)
    table = translator.model.decoder[0].cross.in_proj_weight
    monkeypatch.setattr(table, "data", table.data * 1e38)
    with pytest.raises(RunFailed, match="a log-probability is no finite number"):
        view_pairs(translator, [translator.encode_pair(*PAIRS[0])], translator.subwords.encode("The dog ."))
