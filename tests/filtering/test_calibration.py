"""A detector fitted on noise finds what can be found, and counts what it is told to count."""

import numpy as np
import pytest

from rela.filtering import calibration
from rela.filtering.calibration import calibrate, fit_detector, fit_weights
from rela.filtering.detection import auroc
from rela.filtering.detector import Detector, features_of, view_both
from rela.filtering.noise import ALL_NOISES, make_noise
from tests.filtering.corpora import TRUSTED
from tests.tiny_models import BACK, tiny_translator, toy_pairs


def test_the_regression_finds_a_direction_and_leaves_noise_alone():
    random = np.random.default_rng(1)
    clean, noisy = random.normal(size=(400, 3)), random.normal((3.0, 0.0, -1.5), size=(200, 3))
    weights, bias = fit_weights(np.concatenate([clean, noisy]), np.repeat([False, True], [400, 200]))
    assert weights[0] > 5 * abs(weights[1])
    assert weights[2] < -3 * abs(weights[1])
    fitted = Detector(("a", "b", "c"), (0.0,) * 3, (1.0,) * 3, weights, bias, weights, bias)
    scores = fitted.score(np.concatenate([clean, noisy]))
    assert auroc(scores[:400], scores[400:]) > 0.97
    assert 0.4 < (scores[:400].mean() + scores[400:].mean()) / 2 < 0.6, "both sides count alike"
    assert fitted.score(np.array([[1e9, 0.0, 0.0]])) == fitted.score(np.array([[5.0, 0.0, 0.0]])), "clipped"


def test_a_pair_with_nothing_right_is_worse_than_one_with_something_wrong():
    """Two features: one shows any noise, the other only noise that leaves nothing."""
    random = np.random.default_rng(1)

    def drawn(*centre: float) -> np.ndarray:
        return random.normal(centre, 1.0, size=(300, 2))

    parts = {"trusted": drawn(0.0, 0.0), "omission": drawn(4.0, 0.0), "shuffled": drawn(4.0, 4.0)}
    found = fit_detector(("any", "all"), parts, parts, "same")
    trusted, partly, wholly = (found.score(np.array([centre])).item() for centre in ((0, 0), (4, 0), (4, 4)))
    assert trusted < 0.1 < 0.4 < partly < 0.6 < 0.9 < wholly


def test_noise_that_shows_is_found_even_by_an_untrained_model(detectors):
    """Copies, repetitions, insertions and lengths need no translation; each pair is one the fit never saw."""
    assert set(detectors) == {"alone", "both"}
    for name, detector in detectors.items():
        assert set(detector.auroc) == set(ALL_NOISES)
        assert min(detector.auroc["wrong-language"], detector.auroc["insertion"]) > 0.7
        assert 0 < detector.thresholds["notice"] <= detector.thresholds["warn"] < 1, name
    others = toy_pairs(20, seed=12)
    models = tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK)
    both = detectors["both"]
    clean, noisy = (
        both.score(features_of(*view_both(*models, pairs, both.references)))
        for pairs in (others, make_noise(others, "wrong-language", 1))
    )
    assert auroc(clean, noisy) > 0.8


def test_log_probabilities_have_no_weight_on_another_domain(detectors):
    weights = dict(zip(detectors["both"].names, detectors["both"].weights, strict=True))
    assert weights["log_prob"] == weights["reverse worst_log_prob"] == 0.0
    assert weights["explained"] != 0.0
    same = calibrate(tiny_translator(), None, TRUSTED[:20], "same")["alone"]
    assert dict(zip(same.names, same.weights, strict=True))["log_prob"] != 0.0
    with pytest.raises(ValueError, match="domain is 'mine'"):
        calibrate(tiny_translator(), None, TRUSTED, "mine")


def test_a_reference_of_ones_own_is_kept_instead_of_trusted_text(detectors):
    own = calibrate(tiny_translator(), None, TRUSTED[:20], reference=("ein Satz", "a sentence"))["alone"]
    assert own.references == ("ein Satz", "a sentence")
    assert detectors["alone"].references[0] in [source for source, _ in TRUSTED]


def test_too_few_trusted_pairs_are_refused():
    with pytest.raises(ValueError, match="19 trusted pairs"):
        calibrate(tiny_translator(), None, [*TRUSTED[:19], ("", "empty"), ("zu lang " * 100, "x")])


def test_pairs_are_looked_at_some_at_a_time_which_changes_nothing(detectors, monkeypatch):
    """A view holds the encoder's output, so the views of all pairs together could be larger than the memory."""
    sizes = []

    def viewed(forward, backward, pairs, references):
        sizes.append(len(pairs))
        return view_both(forward, backward, pairs, references)

    monkeypatch.setattr(calibration, "view_both", viewed)
    monkeypatch.setattr(calibration, "WINDOW", 7, raising=False)
    models = tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK)
    assert calibrate(*models, TRUSTED) == detectors
    assert max(sizes) <= 7
