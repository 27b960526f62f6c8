"""Fitting a detector of bad translations: trusted pairs, noise made of them on purpose, and no labels.

Trusted pairs are made noisy in every way of `rela.filtering.noise`. The first regression of a detector tells the noisy
from the trusted ones; the second tells pairs whose whole target is wrong from all others, so that a translation that
says something else is worse than one that leaves something out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rela.alignment.joint import JointAligner
from rela.decoding.directions import check_opposite, check_order
from rela.decoding.translate import Translator
from rela.filtering.detection import auroc
from rela.filtering.detector import (
    LARGEST,
    Detector,
    features_of,
    names_of,
    problem_of,
    scorable,
    view_both,
)
from rela.filtering.features import OF_DOMAIN, PairView
from rela.filtering.fingerprint import aligner_fingerprint, model_fingerprint
from rela.filtering.noise import ALL_NOISES, Pair, make_noise
from rela.filtering.words import Numbers, limits_of, links_by_word, shared_aligner, source_numbers, target_numbers

PENALTY = 1.0
"""On the squared weights, beside a loss that is a sum over pairs."""
DOMAINS = ("other", "same")
UNRELATED = ("shuffled", "wrong-language")
"""Kinds of noise that leave nothing of the translation."""
WINDOW = 512
"""Pairs that are looked at together."""
TRUSTED = 1000
"""Trusted pairs a detector is fitted on, unless told otherwise."""
ENOUGH = 250
"""Trusted pairs; with fewer, more than 2 % of good pairs are worse than all that were kept out of the fit."""
FALSE_ALARMS = {"notice": 0.05, "warn": 0.01}
"""Share of trusted pairs, or of their words, above a threshold."""


def calibrate(
    forward: Translator,
    backward: Translator | None,
    pairs: Sequence[Pair],
    domain: str = "other",
    reference: Pair | None = None,
    seed: int = 1,
) -> dict[str, Detector]:
    """Detectors fitted on trusted pairs and noise made of them: "alone" and, with a backward model, "both".

    `domain` is that of the pairs to be checked: "same" as the trusted ones, or "other", which leaves out OF_DOMAIN.
    `reference` is the other source and target of `contrast`, which the folder keeps; sentences of the trusted pairs
    if left out.
    Thresholds and AUROC come from every fifth pair, which is kept out of the fit.
    """
    check_opposite(forward, backward)
    if domain not in DOMAINS:
        raise ValueError(f"domain is {domain!r}; wanted one of {', '.join(DOMAINS)}")
    if reference is not None and (problem := problem_of(forward, backward, reference)):
        raise ValueError(f"the reference is {problem}; wanted a sentence of each language")
    aligner = shared_aligner(forward, backward)
    pairs = [pair for pair in pairs if scorable(forward, backward, pair)]
    if len(pairs) < 20:
        raise ValueError(f"there are {len(pairs)} trusted pairs to fit a detector on; wanted at least 20")
    check_order(forward, pairs)
    references = tuple(middle(pairs, side) for side in (0, 1)) if reference is None else tuple(reference)
    versions = {"trusted": list(pairs), **{kind: make_noise(pairs, kind, seed) for kind in ALL_NOISES}}
    learnt: dict[str, NDArray[np.float64]] = {}
    held: dict[str, NDArray[np.float64]] = {}
    words: list[Numbers] = []
    for kind, made in versions.items():
        usable = [
            (i % 5 == 4, pair)
            for i, pair in enumerate(made)
            if scorable(forward, backward, pair) and made_noisy(kind, pair, pairs[i])
        ]
        if not usable:
            continue
        parts = []
        for start in range(0, len(usable), WINDOW):  # a view holds the encoder's output of its pair
            window = [pair for _, pair in usable[start : start + WINDOW]]
            there, back = view_both(forward, backward, window, references)
            parts.append(features_of(there, back))
            if kind == "trusted":
                words += word_numbers(forward, backward, window, there, back, aligner)
        features, kept_out = np.concatenate(parts), np.array([out for out, _ in usable], dtype=bool)
        learnt[kind], held[kind] = features[~kept_out], features[kept_out]
    alone = fit_detector(names_of(forward, None), learnt, held, domain)
    limits = limits_of(words, FALSE_ALARMS["warn"])
    shared = {"references": references, "words": limits, "trusted": len(pairs)}
    detectors = {"alone": replace(alone, **shared)}  # type: ignore[arg-type]
    if backward is not None:
        both = fit_detector(names_of(forward, backward), learnt, held, domain)
        shared |= {"reverse": model_fingerprint(backward), "aligner": aligner_fingerprint(aligner) if aligner else ""}
        detectors["both"] = replace(both, **shared)  # type: ignore[arg-type]
    return detectors


def fit_detector(
    names: tuple[str, ...],
    learnt: dict[str, NDArray[np.float64]],
    held: dict[str, NDArray[np.float64]],
    domain: str = "other",
) -> Detector:
    """The regressions over the first features, as many as there are names; `learnt` and `held` are [N, F] by kind."""
    learnt, held = ({kind: values[:, : len(names)] for kind, values in part.items()} for part in (learnt, held))
    clean = learnt["trusted"]
    everything = np.concatenate(list(learnt.values()))
    deviation = everything.std(0)
    mean, scale = clean.mean(0), np.where(deviation > 1e-9, deviation, 1.0)
    kinds = np.repeat(list(learnt), [len(values) for values in learnt.values()])
    z = np.clip((everything - mean) / scale, -LARGEST, LARGEST)
    if domain == "other":
        z *= [name.removeprefix("reverse ") not in OF_DOMAIN for name in names]  # the penalty makes their weights 0
    weights, bias = fit_weights(z, kinds != "trusted")
    unrelated_weights, unrelated_bias = fit_weights(z, np.isin(kinds, UNRELATED))
    detector = Detector(
        names,
        tuple(mean.tolist()),
        tuple(scale.tolist()),
        weights,
        bias,
        unrelated_weights,
        unrelated_bias,
        domain,
    )
    scores = {kind: detector.score(values) for kind, values in held.items()}
    return replace(
        detector,
        thresholds={name: float(np.quantile(scores["trusted"], 1 - share)) for name, share in FALSE_ALARMS.items()},
        auroc={kind: auroc(scores["trusted"], scores[kind]) for kind in ALL_NOISES if len(scores.get(kind, ()))},
    )


def made_noisy(kind: str, pair: Pair, trusted: Pair) -> bool:
    """Whether a pair is what its kind says: noise that changed nothing is no noise."""
    return kind == "trusted" or " ".join(pair[1].split()) != " ".join(trusted[1].split())


def middle(pairs: Sequence[Pair], side: int) -> str:
    """The sentence of middle length, of one side."""
    texts = sorted({pair[side] for pair in pairs}, key=lambda text: (len(text.split()), text))
    return texts[len(texts) // 2]


def word_numbers(
    forward: Translator,
    backward: Translator | None,
    pairs: Sequence[Pair],
    there: Sequence[PairView],
    back: Sequence[PairView] | None,
    aligner: JointAligner | None,
) -> list[Numbers]:
    """The numbers of `rela.filtering.words` of the words on both sides of each pair."""
    both = list(back) if back is not None else [None] * len(pairs)
    links = links_by_word(aligner, pairs, there, back)
    return [
        target_numbers(forward, pair, ours, link) | source_numbers(forward, backward, pair, ours, theirs, link)
        for pair, ours, theirs, link in zip(pairs, there, both, links, strict=True)
    ]


def fit_weights(z: NDArray[np.float64], bad: NDArray[np.bool_], steps: int = 30) -> tuple[tuple[float, ...], float]:
    """Weights and bias of features [N, F] by Newton's method; all bad pairs together count as much as all others."""
    z = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    label = bad.astype(np.float64)
    count = np.where(bad, len(label) / (2 * max(bad.sum(), 1)), len(label) / (2 * max((~bad).sum(), 1)))
    penalty = np.full(z.shape[1], PENALTY)
    penalty[-1] = 1e-6  # the bias is free
    weights = np.zeros(z.shape[1])
    for _ in range(steps):
        probability = 1 / (1 + np.exp(-np.clip(z @ weights, -30, 30)))
        gradient = z.T @ (count * (probability - label)) + penalty * weights
        curvature = (z * (count * np.maximum(probability * (1 - probability), 1e-6))[:, None]).T @ z
        step = np.linalg.solve(curvature + np.diag(penalty), gradient)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return tuple(weights[:-1].tolist()), float(weights[-1])
