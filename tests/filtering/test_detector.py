"""A detector is kept in the folder of its model, and refuses other models."""

import json

import pytest

from rela.filtering.detector import (
    DETECTOR,
    detector_fingerprint,
    detector_for,
    load_detectors,
    names_of,
    save_detectors,
)
from rela.model.folder import ModelFolderError
from tests.tiny_models import BACK, tiny_folder, tiny_translator


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
