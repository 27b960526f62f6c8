"""A detector is kept in the folder of its model, and refuses other models."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rela.filtering.detector import (
    DETECTOR,
    detector_fingerprint,
    detector_for,
    features_of,
    load_detectors,
    names_of,
    save_detectors,
    view_both,
)
from rela.filtering.features import LATER
from rela.filtering.fingerprint import model_fingerprint
from rela.model.folder import ModelFolderError
from tests.tiny_models import BACK, tiny_folder, tiny_translator, toy_pairs


def test_it_is_kept_in_the_folder_with_the_models_it_was_made_for(tmp_path, detectors):
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    assert detector_for(there, None) is None
    save_detectors(tmp_path / "there", detectors)
    assert load_detectors(tmp_path / "there") == detectors
    assert detector_for(there, None) == detectors["alone"]
    assert detector_for(there, back) == detectors["both"]
    assert detector_fingerprint(detectors["alone"]) != detector_fingerprint(detectors["both"])
    with pytest.raises(ModelFolderError, match="another reverse model"):
        detector_for(there, tiny_translator("rela-g", seed=3, languages=BACK))
    values = json.loads((tmp_path / "there" / DETECTOR).read_text())
    values["alone"]["names"][0] = "something else"
    (tmp_path / "there" / DETECTOR).write_text(json.dumps(values))
    with pytest.raises(ModelFolderError, match="made for another model"):
        detector_for(there, None)
    for damaged in ("0.5", None, float("nan"), True):
        (tmp_path / "there" / DETECTOR).write_text(json.dumps({"alone": {**values["alone"], "bias": damaged}}))
        with pytest.raises(ModelFolderError, match=r"check.json is damaged: .* no finite number"):
            load_detectors(tmp_path / "there")
    (tmp_path / "there" / DETECTOR).write_text(json.dumps({"both": {**values["both"], "thresholds": {"warn": 0.5}}}))
    with pytest.raises(ModelFolderError, match=r"damaged: a threshold is missing"):
        load_detectors(tmp_path / "there")
    (tmp_path / "there" / DETECTOR).write_text(json.dumps({"both": {**values["both"], "aligner": 5}}))
    with pytest.raises(ModelFolderError, match=r"damaged: .*no text"):
        load_detectors(tmp_path / "there")
    del values["both"]["unrelated_weights"]
    (tmp_path / "there" / DETECTOR).write_text(json.dumps(values))
    with pytest.raises(ModelFolderError, match="older version; run rela check --calibrate"):
        load_detectors(tmp_path / "there")
    del values["both"]
    values["alone"]["names"].pop()
    (tmp_path / "there" / DETECTOR).write_text(json.dumps(values))
    with pytest.raises(ModelFolderError, match=r"damaged: .*not equally many"):
        load_detectors(tmp_path / "there")


def test_names_and_features_are_equally_many(detectors):
    assert len(names_of(tiny_translator(), None)) == len(detectors["alone"].weights)
    assert len(names_of(tiny_translator(), tiny_translator())) == len(detectors["both"].weights)


def test_a_detector_of_an_older_version_scores_as_before(tmp_path, detectors):
    """Its file has fewer numbers a model; those that it does not know get no weight."""
    there, back = tiny_folder(tmp_path / "there"), tiny_folder(tmp_path / "back", seed=2, languages=BACK)
    new = detectors["both"]
    known = [i for i, name in enumerate(new.names) if name.removeprefix("reverse ") not in LATER]
    assert len(known) == len(new.names) - 2
    parts = ("names", "mean", "deviation", "weights", "unrelated_weights")
    old = replace(new, **{part: tuple(getattr(new, part)[i] for i in known) for part in parts})
    save_detectors(tmp_path / "there", {"both": replace(old, reverse=model_fingerprint(back))})
    read = detector_for(there, back)
    features = features_of(*view_both(there, back, toy_pairs(5), new.references))
    assert read.names == new.names
    assert read.score(features) == pytest.approx(old.score(features[:, known]), abs=1e-12)


def test_a_score_does_not_depend_on_the_pairs_beside_it(detectors):
    """Equal pairs share a rank of `rela filter`, so their scores are equal in every bit."""
    detector = detectors["both"]
    one = np.random.default_rng(1).normal(detector.mean, detector.deviation)
    for count in (1, 2, 3, 7, 150):
        assert set(detector.score(np.tile(one, (count, 1))).tolist()) == set(detector.score(one[None]).tolist())
