"""Filtering noise: add it to a training corpus, find it with several scores, train models on the pairs each keeps.

    python -m experiments.filter_experiment plant --source train.en --target train.de --out work
    python -m experiments.filter_experiment rank --model runs/en-de/model --reverse runs/de-en/model --out work
    python -m experiments.filter_experiment train --config base.yaml --out work \\
        --test-source test.en --test-target test.de
    python -m experiments.filter_experiment compare --out work --test-target test.de

`plant` makes 20 % of the pairs noisy: shuffled, wrong language, insertion, omission, repetition and copy in equal
parts. It writes all pairs (`none`), the pairs without noise (`oracle`) and the 80 % that the length ratio keeps. `rank`
scores all pairs in one pass with a calibrated model (`rela check --calibrate`), prints how many of the worst 5 % and 20
% are planted noise, and writes the 80 % that each score keeps. `train` trains the base config on each of these,
translates a test set and computes BLEU. `compare` says by paired bootstrap (sacreBLEU, 1,000 samples) how much the
translations of every model differ from those of the oracle and of `score` with the same seed.

Each step continues where it stopped. `score --process 0 --processes 4` scores a quarter of the blocks, so that four
processes can share the work before `rank`. `train --rule NAME` trains one model, so that several can be trained at
once. Models that need no scores can be trained before there are any.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import programs
from rela.config import CorpusConfig, load_config, save_config
from rela.data.corpus import read_lines, read_pairs
from rela.decoding.translate import Translator
from rela.evaluation.scores import bleu
from rela.evaluation.significance import paired_bootstrap
from rela.files import write_text
from rela.filtering.combined_scorer import CombinedScorer
from rela.filtering.detection import auroc, auroc_interval
from rela.filtering.noise import Pair, make_noise
from rela.filtering.score_corpus import score_corpus
from rela.filtering.score_store import ScoreStore

KINDS = ("shuffled", "wrong-language", "insertion", "omission", "repetition", "copy")
NOISE = 0.2
RULES = ("score", "log-prob", "null-rate", "length-ratio")


def proportion(text: str) -> float:
    """The type of an option that is a share."""
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}; wanted a number from 0 to 1")
    return share


def plant(
    pairs: Sequence[Pair], share: float, seed: int, other_language: Sequence[str] = ()
) -> tuple[list[Pair], list[str]]:
    """The pairs with some made noisy, and the kind of noise of each, "" for none.

    Without text of another language, `wrong-language` is partly copied text, and `copy` the source itself.
    """
    random = Random(seed)
    chosen = random.sample(range(len(pairs)), round(share * len(pairs)))
    made, kinds = list(pairs), [""] * len(pairs)
    for number, kind in enumerate(KINDS):
        lines = chosen[number :: len(KINDS)]
        clean = [pairs[i] for i in lines]
        if kind == "wrong-language" and other_language:
            noisy = [(source, random.choice(other_language)) for source, _ in clean]
        else:
            name = {"copy": "wrong-language", "wrong-language": "partly-copied"}.get(kind, kind)
            noisy = make_noise(clean, name, seed) if len(clean) > 1 else clean
        for i, before, after in zip(lines, clean, noisy, strict=True):
            if after != before and all(side.split() for side in after):
                made[i], kinds[i] = after, kind
    return made, kinds


def write_pairs(pairs: Iterable[Pair], stem: Path) -> None:
    kept = list(pairs)
    for side, name in enumerate(("source", "target")):
        write_text(stem.with_name(f"{stem.name}.{name}"), "".join(f"{pair[side]}\n" for pair in kept))


def read_noisy(out: Path) -> tuple[list[Pair], list[str]]:
    pairs = list(read_pairs(out / "noisy.source", out / "noisy.target", "raise"))
    kinds = (out / "noisy.kinds").read_text(encoding="utf-8").split("\n")[:-1]
    if len(kinds) != len(pairs):
        raise ValueError(f"{out / 'noisy.kinds'} has {len(kinds)} lines for {len(pairs)} pairs; run plant again")
    return pairs, kinds


def length_badness(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """How far the log of the length ratio is from its median."""
    ratios = np.array([np.log((len(target.split()) + 1) / (len(source.split()) + 1)) for source, target in pairs])
    return np.asarray(np.abs(ratios - np.median(ratios)))


def score_noisy(options: argparse.Namespace, process: int = 0, processes: int = 1) -> ScoreStore:
    """The scores of the pairs that are this process' share; the others' are in the same folder."""
    backward = None if options.reverse is None else Translator.load(options.reverse, options.device)
    scorer = CombinedScorer(Translator.load(options.model, options.device), backward)
    files = options.out / "noisy.source", options.out / "noisy.target"
    return score_corpus(scorer, *files, options.out / "scores.parts", rank=process, world=processes)


def badness(scores: NDArray[Any], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Every rule's number for each pair, high is bad; a pair that cannot be read is the worst."""
    found = {
        "score": scores["score"],
        "log-prob": -scores["log_prob"],
        "null-rate": scores["null_rate"],
        "length-ratio": length_badness(pairs),
    }
    return {name: np.where(np.isnan(values), np.inf, values) for name, values in found.items()}


def precision(values: NDArray[np.float64], noisy: NDArray[np.bool_], share: float) -> float:
    """The share of planted pairs among the worst."""
    worst = np.argsort(-values, kind="stable")[: max(1, round(share * len(values)))]
    return float(noisy[worst].mean())


def precision_interval(
    values: NDArray[np.float64], noisy: NDArray[np.bool_], share: float, resamples: int, seed: int = 1
) -> list[float]:
    """The 95 % confidence interval of the precision, by bootstrap over the pairs."""
    random = np.random.default_rng(seed)
    draws = (random.integers(len(values), size=len(values)) for _ in range(resamples))
    found = [precision(values[draw], noisy[draw], share) for draw in draws]
    return [float(edge) for edge in np.percentile(found, [2.5, 97.5])]


def precision_rows(
    found: dict[str, NDArray[np.float64]], kinds: Sequence[str], resamples: int = 200
) -> list[dict[str, Any]]:
    """For each rule: the share of planted pairs among the worst 5 % and 20 %, AUROC, and AUROC of every kind.

    The shares and the AUROC have a 95 % interval, by so many draws of the pairs.
    """
    noisy = np.array([kind != "" for kind in kinds])
    rows = []
    for rule, values in found.items():
        row: dict[str, Any] = {"rule": rule}
        for share in (0.05, 0.2):
            name = f"precision in the worst {share:.0%}"
            row[name] = precision(values, noisy, share)
            row[f"{name}, interval"] = precision_interval(values, noisy, share, resamples)
        finite = np.where(np.isinf(values), np.nanmax(values[np.isfinite(values)]) + 1, values)
        row["auroc"] = auroc(finite[~noisy], finite[noisy])
        row["auroc, interval"] = list(auroc_interval(finite[~noisy], finite[noisy], resamples))
        for kind in KINDS:
            if any(one == kind for one in kinds):
                row[f"auroc {kind}"] = auroc(finite[~noisy], finite[[one == kind for one in kinds]])
        rows.append(row)
    return rows


def write_kept(pairs: Sequence[Pair], rule: str, values: NDArray[np.float64], options: argparse.Namespace) -> None:
    """Write the pairs that a rule keeps, in order: all but the worst share."""
    count = round((1 - options.share) * len(pairs))
    lines = np.sort(np.argsort(values, kind="stable")[:count]).tolist()
    write_pairs((pairs[i] for i in lines), options.out / f"kept-{rule}")


def do_plant(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = list(islice(read_pairs(options.source, options.target, "skip"), options.limit))
    if not pairs:
        raise ValueError(f"{options.source} and {options.target} have no pairs with text on both sides")
    other = list(islice(read_lines(options.other_language), options.limit)) if options.other_language else []
    made, kinds = plant(pairs, options.share, options.seed, [line for line in other if line.split()])
    write_pairs(made, options.out / "noisy")
    write_text(options.out / "noisy.kinds", "".join(f"{kind}\n" for kind in kinds))
    write_pairs(made, options.out / "kept-none")
    write_pairs((pair for pair, kind in zip(made, kinds, strict=True) if not kind), options.out / "kept-oracle")
    write_kept(made, "length-ratio", length_badness(made), options)
    print(f"{options.out}: {len(pairs):,} pairs, {sum(map(bool, kinds)):,} of them made noisy")


def do_score(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    score_noisy(options, options.process, options.processes)
    seconds = time.perf_counter() - started
    print(f"process {options.process} of {options.processes} scored its share in {seconds:.1f} s", flush=True)


def do_rank(options: argparse.Namespace) -> None:
    pairs, kinds = read_noisy(options.out)
    found = badness(score_noisy(options).read(), pairs)
    rows = precision_rows(found, kinds)
    for row in rows:
        shown = (f"{name} {value:.3f}" for name, value in row.items() if isinstance(value, float))
        print("  ".join([row["rule"], *shown]))
    write_text(options.out / "precision.json", json.dumps(rows, indent=1))
    for rule, values in found.items():
        write_kept(pairs, rule, values, options)


def do_train(options: argparse.Namespace) -> None:
    sources, references = (list(read_lines(path)) for path in (options.test_source, options.test_target))
    for rule in options.rule or ("none", "oracle", *RULES):
        config = load_config(options.config, options.set or ())
        source, target = (str((options.out / f"kept-{rule}.{side}").absolute()) for side in ("source", "target"))
        data = dataclasses.replace(
            config.data, train=(CorpusConfig(source, target),), directory=str(options.out / f"prepared-{rule}")
        )
        name = f"{rule}-{config.train.seed}"
        directory = options.out / f"run-{name}"
        train = dataclasses.replace(config.train, directory=str(directory))
        path = options.out / f"{name}.yaml"
        save_config(dataclasses.replace(config, data=data, train=train), path)
        for command in (["prepare", str(path)], ["train", "--quiet", str(path)]):
            subprocess.run([sys.executable, "-m", "rela", *command], check=True, stdout=subprocess.DEVNULL)
        translator = Translator.load(directory / "model", options.device)
        translations = translator.translate(sources)
        write_text(options.out / f"test-{name}", "".join(f"{line}\n" for line in translations))
        score = bleu(translations, references, force=True)
        facts = {"pairs": sum(1 for _ in read_lines(source)), "steps": config.train.steps, "seed": config.train.seed}
        row = {"rule": rule, **facts, "bleu": score.value, "signature": score.signature}
        write_text(options.out / f"bleu-{name}.json", json.dumps(row))
        print(f"{name}: BLEU {score.value:.2f}", flush=True)
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.out.glob("bleu-*.json"))]
    write_text(options.out / "bleu.json", json.dumps(rows, indent=1))


def do_compare(options: argparse.Namespace) -> None:
    references = list(read_lines(options.test_target))
    texts = {path.name.removeprefix("test-"): list(read_lines(path)) for path in sorted(options.out.glob("test-*"))}
    rows = []
    for name, lines in texts.items():
        rule, _, seed = name.rpartition("-")
        if not seed.isdecimal():  # no translation of ours
            continue
        for baseline in ("oracle", "score"):
            other = texts.get(f"{baseline}-{seed}")
            if rule != baseline and other is not None:
                found = paired_bootstrap(lines, other, references)[0]
                rows.append({"rule": rule, "seed": int(seed), "against": baseline, **dataclasses.asdict(found)})
                print(f"{name} against {baseline}: {found}", flush=True)
    if not rows:
        raise SystemExit(f"{options.out} has no two translations of one seed to compare; run train first")
    write_text(options.out / "compare.json", json.dumps(rows, indent=1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    parsers = {}
    for name, run in (
        ("plant", do_plant),
        ("score", do_score),
        ("rank", do_rank),
        ("train", do_train),
        ("compare", do_compare),
    ):
        step = parsers[name] = steps.add_parser(name)
        step.add_argument("--out", type=Path, required=True)
        step.add_argument("--share", type=proportion, default=NOISE, help="share of the pairs that are made noisy")
        step.set_defaults(run=run)
    planting, scoring, ranking, training, comparing = parsers.values()
    planting.add_argument("--source", type=Path, required=True)
    planting.add_argument("--target", type=Path, required=True)
    planting.add_argument("--other-language", type=Path, help="text for the noise of a wrong language")
    planting.add_argument("--limit", type=programs.at_least(1))
    planting.add_argument("--seed", type=int, default=1)
    for step in (scoring, ranking):
        step.add_argument("--model", type=Path, required=True)
        step.add_argument("--reverse", type=Path)
        step.add_argument("--device", default="auto")
    scoring.add_argument("--process", type=programs.at_least(0), default=0)
    scoring.add_argument("--processes", type=programs.at_least(1), default=1)
    training.add_argument(
        "--config", type=Path, required=True, help="config of the models; its training text is replaced"
    )
    training.add_argument("--set", action="append", help="override a value of the config")
    training.add_argument(
        "--rule", action="append", choices=("none", "oracle", *RULES), help="train only with this rule (repeatable)"
    )
    training.add_argument("--test-source", type=Path, required=True)
    for step in (training, comparing):
        step.add_argument("--test-target", type=Path, required=True)
    training.add_argument("--device", default="auto")
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    sys.exit(programs.run(main))
