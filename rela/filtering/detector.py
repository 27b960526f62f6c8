"""One number for how bad a sentence pair is: two logistic regressions fitted on noise made on purpose, without labels.

    score = (σ(w · z + b) + σ(u · z + c)) / 2     z = clip((features − mean) / deviation, ±5)

The features are those of one model, or of two models of opposite directions. `rela.filtering.calibration` fits the two
regressions, which are kept in the model folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.corpus import EMPTY, is_empty
from rela.decoding.directions import check_opposite
from rela.decoding.even_packing import IdPair
from rela.decoding.translate import PairTooLong, Translator
from rela.files import read_json, write_text
from rela.filtering.features import LATER, PairView, feature_names, view_pairs
from rela.filtering.fingerprint import model_fingerprint
from rela.filtering.noise import Pair
from rela.model.folder import ModelFolderError

DETECTOR = "check.json"
TOO_LONG_FOR_MODEL = "too long for the model"
LARGEST = 5.0
"""The size at which a feature is cut off, in deviations from its mean."""


@dataclass(frozen=True)
class Detector:
    """The regression, its thresholds, and what it was fitted on."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    """w, and `bias` b, of bad pairs."""
    bias: float
    unrelated_weights: tuple[float, ...]
    """u, and `unrelated_bias` c, of pairs whose whole target is wrong."""
    unrelated_bias: float
    domain: str = "same"
    """Of the pairs to be checked: "same" as the trusted ones, or "other", where log-probabilities have no weight."""
    references: tuple[str, ...] = ("", "")
    """The other source of `contrast` and, for the backward model, the other target."""
    thresholds: dict[str, float] = field(default_factory=dict)
    """Scores above which 5 % (notice) and 1 % (warn) of the trusted pairs lie."""
    words: dict[str, float] = field(default_factory=dict)
    """Of single words, by the names of `rela.filtering.words`: above which value 1 % of the trusted words lie, or, of
    "attention", below which. Older detectors do not have all."""
    trusted: int = 0
    """Pairs it was fitted on."""
    auroc: dict[str, float] = field(default_factory=dict)
    """By kind of noise, on pairs that were kept out of the fit."""
    reverse: str = ""
    """The fingerprint of the backward model, if there are two."""
    aligner: str = ""
    """The fingerprint of the trained aligner that links of words came from, if there was one."""

    def score(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """[N], of features [N, F]: from 0 to 1, high is bad; a pair's score does not depend on the pairs beside it."""
        z = np.clip((features - np.array(self.mean)) / np.array(self.deviation), -LARGEST, LARGEST)
        bad = logistic(weighted(z, self.weights) + self.bias)
        unrelated = logistic(weighted(z, self.unrelated_weights) + self.unrelated_bias)
        return np.asarray((bad + unrelated) / 2)


def weighted(z: NDArray[np.float64], weights: tuple[float, ...]) -> NDArray[np.float64]:
    """[N], z · w of each row of z [N, F]; the last bits of `z @ w` would depend on the other rows."""
    return np.asarray((z * np.array(weights)).sum(axis=1))


def logistic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -500, 500))))


def view_both(
    forward: Translator, backward: Translator | None, pairs: Sequence[Pair], references: Sequence[str]
) -> tuple[list[PairView], list[PairView] | None]:
    """The views of both models, or of one; the backward model's pairs are turned round."""
    for translator in (forward, backward):
        if translator is not None and not translator.subwords.is_joint:
            shared = "it counts the subwords that source and target share"
            raise ValueError(f"{translator.folder} has separate vocabularies; wanted a joint one: {shared}")
    there = view_pairs(forward, encode_all(forward, pairs), forward.subwords.encode(references[0]))
    if backward is None:
        return there, None
    turned = [(target, source) for source, target in pairs]
    return there, view_pairs(backward, encode_all(backward, turned), backward.subwords.encode(references[1]))


def encode_all(translator: Translator, pairs: Sequence[Pair]) -> list[IdPair]:
    return [translator.encode_pair(source, target) for source, target in pairs]


def features_of(there: Sequence[PairView], back: Sequence[PairView] | None) -> NDArray[np.float64]:
    """[N, F], the features of both views side by side."""
    if not there:
        return np.empty((0, 0))
    ours = np.stack([view.features for view in there])
    return ours if back is None else np.concatenate([ours, np.stack([view.features for view in back])], axis=1)


def names_of(forward: Translator, backward: Translator | None) -> tuple[str, ...]:
    """The names of `features_of`."""
    names = []
    for prefix, translator in (("", forward), ("reverse ", backward)):
        if translator is not None:
            shape = translator.config.model
            names += [prefix + name for name in feature_names(shape.decoder_layers, shape.heads)]
    return tuple(names)


def problem_of(forward: Translator, backward: Translator | None, pair: Pair) -> str:
    """Why a pair has no score; nothing if it has one."""
    try:
        ids = forward.encode_pair(*pair)
        turned = ids if backward is None else backward.encode_pair(pair[1], pair[0])
    except PairTooLong:
        return TOO_LONG_FOR_MODEL
    # Text of characters that a subword model leaves out is empty too.
    return EMPTY if is_empty(*pair) or not (all(ids) and all(turned)) else ""


def scorable(forward: Translator, backward: Translator | None, pair: Pair) -> bool:
    """Whether both models can read a pair."""
    return not problem_of(forward, backward, pair)


def save_detectors(folder: Path, detectors: dict[str, Detector]) -> None:
    """Keep the detectors of a model in its folder, by name: "alone" and, with a backward model, "both"."""
    write_text(
        folder / DETECTOR, json.dumps({name: asdict(detector) for name, detector in detectors.items()}, indent=1)
    )


def load_detectors(folder: Path) -> dict[str, Detector]:
    """The detectors of a model folder, by name; none where it was not calibrated."""
    path = folder / DETECTOR
    if not os.path.lexists(path):
        return {}
    try:
        found = read_json(path)
        if any("unrelated_weights" not in values for values in found.values()):
            raise ModelFolderError(f"{path} was made by an older version; run rela check --calibrate again")
        return {name: read_detector(values) for name, values in found.items()}
    except ModelFolderError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFolderError(f"{path} is damaged: {error}") from None


def read_detector(values: dict[str, Any]) -> Detector:
    """A detector from the values of its file, checked."""
    fields = ("names", "mean", "deviation", "weights", "unrelated_weights")
    tuples = {name: tuple(values[name]) for name in (*fields, "references")}
    detector = Detector(**{**values, **tuples})
    sizes = {len(getattr(detector, name)) for name in fields}
    if len(sizes) != 1:
        raise ValueError("names, means, deviations and weights are not equally many")
    if not {"warn", "notice"} <= detector.thresholds.keys():
        raise ValueError("a threshold is missing")
    numbers = [*detector.mean, *detector.deviation, *detector.weights, *detector.unrelated_weights]
    numbers += [detector.bias, detector.unrelated_bias, *detector.thresholds.values(), *detector.words.values()]
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise ValueError("a mean, a deviation, a weight or a threshold is no finite number")
    if not all(
        isinstance(text, str) for text in (*detector.names, *detector.references, detector.reverse, detector.aligner)
    ):
        raise ValueError("a name or a reference is no text")
    return detector


def detector_for(forward: Translator, backward: Translator | None) -> Detector | None:
    """The detector in the forward model's folder that fits these models; None if it was never calibrated."""
    check_opposite(forward, backward)
    found = load_detectors(forward.folder) if forward.folder is not None else {}
    detector = found.get("alone" if backward is None else "both")
    if detector is None:
        return None
    names = names_of(forward, backward)
    if detector.names == tuple(name for name in names if name.removeprefix("reverse ") not in LATER):
        detector = with_names(detector, names)
    if detector.names != names:
        raise ModelFolderError(
            f"{forward.folder}/{DETECTOR} was made for another model; run rela check --calibrate again"
        )
    if backward is not None and detector.reverse != model_fingerprint(backward):
        raise ModelFolderError(
            f"{forward.folder}/{DETECTOR} was made with another reverse model; run rela check --calibrate again"
        )
    return detector


def with_names(detector: Detector, names: tuple[str, ...]) -> Detector:
    """The same detector for more features, those it does not know without weight."""
    indices = {name: index for index, name in enumerate(detector.names)}

    def spread(values: tuple[float, ...], absent: float = 0.0) -> tuple[float, ...]:
        return tuple(values[indices[name]] if name in indices else absent for name in names)

    return replace(
        detector,
        names=names,
        mean=spread(detector.mean),
        deviation=spread(detector.deviation, 1.0),
        weights=spread(detector.weights),
        unrelated_weights=spread(detector.unrelated_weights),
    )


def detector_fingerprint(detector: Detector) -> str:
    """A hash of everything a score depends on."""
    return hashlib.sha256(json.dumps(asdict(detector), sort_keys=True).encode()).hexdigest()
