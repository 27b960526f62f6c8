"""`rela demo`: ReLA-g and softmax learn the embedded corpus on a CPU, and are compared where the truth is known."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rela.alignment.agreement import choose_alone
from rela.alignment.choose import Aligner, load_choice, save_choice
from rela.analysis.capture import capture
from rela.analysis.words import words
from rela.config import Config, CorpusConfig, DataConfig, DecodeConfig, ModelConfig, TrainConfig, save_config
from rela.data.prepare import prepare
from rela.decoding.translate import Translator
from rela.errors import RunFailed
from rela.evaluation.alignment import GoldLinks
from rela.evaluation.scores import Score, bleu
from rela.progress import Progress
from rela.report.results import Report
from rela.terminal import progress_bars
from rela.toy import NOISES, ToyPair, add_noise, split, write_corpus

KINDS = ("rela-g", "softmax")
TRAIN, VALID, TEST, SEED = 40_000, 300, 500, 1
Say = Callable[[str], None]


def demo_config(directory: str = "demo", kind: str = "rela-g") -> Config:
    """The demo's settings; configs/demo.yaml holds the same, but for folders, for `rela prepare` and `rela train`."""
    return Config(
        data=DataConfig(
            root=f"{directory}/corpus",
            train=(CorpusConfig("train.en", "train.de"),),
            valid=CorpusConfig("valid.en", "valid.de"),
            test=CorpusConfig("test.en", "test.de"),
            directory=f"{directory}/prepared",
            vocabulary_size=2000,
            max_tokens=100,
        ),
        model=ModelConfig(
            width=128,
            heads=4,
            encoder_layers=2,
            decoder_layers=2,
            feed_forward=256,
            encoder_attention=kind,
            decoder_attention=kind,
            cross_attention=kind,
            dropout=0.0,  # the corpus is a function of its source, so there is nothing to overfit
            attention_dropout=0.1,  # keeps a head from leaving its word to the others
            max_length=256,
        ),
        train=TrainConfig(
            directory=f"{directory}/{kind}",
            steps=1500,
            tokens=1000,
            learning_rate=1.0,
            warmup=200,
            cooldown=750,
            centring=500,  # ReLA-g learns as quickly as softmax, which does not see it
            log_every=25,
            validate_every=300,
            save_every=300,
            keep_last=1,
            average_last=1,
            tensorboard=False,
            device="cpu",
        ),
        decode=DecodeConfig(max_length_extra=10),
    )


def demo(directory: Path, say: Say) -> dict[str, Any]:
    """Make the corpus, train both models (or find them trained), compare them, write a report; the main figures."""
    started = time.monotonic()
    test = make_corpus(directory, say)
    prepare(demo_config(str(directory)).data)
    say(f"training {' and '.join(KINDS)} side by side: 2+2 layers, width 128, {TRAIN:,} pairs")
    with progress_bars() as progress:
        train_together([demo_config(str(directory), kind) for kind in KINDS], progress)
    translators = {kind: Translator.load(directory / kind / "model", "cpu") for kind in KINDS}
    say(f"both models trained after {time.monotonic() - started:.0f} s; translating {len(test)} held-out sentences")
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    # force: that the toy text is tokenised is known, and no mistake
    scores = {
        kind: bleu(translator.translate(sources), references, force=True) for kind, translator in translators.items()
    }
    with progress_bars() as progress:
        report = compare(directory, translators, test, progress)
    figures = {"bleu": {kind: score.value for kind, score in scores.items()}, "table": report.table()}
    (directory / "figures.json").write_text(json.dumps(figures, indent=2), encoding="utf-8")
    print_table(report, scores)
    print_translations(translators["rela-g"], test)
    say(f"report with figures: {directory / 'report' / 'index.html'}")
    say(f'try: echo "The old cook is reading a book ." | {program()} translate {directory}/rela-g/model --alignments')
    say(f"done in {time.monotonic() - started:.0f} s; a rerun reuses the models")
    return figures


def program() -> str:
    """The command line as it can be typed here: `rela`, or where it lies in a virtual environment."""
    beside = Path(sys.executable).with_name("rela")
    if shutil.which("rela") or not beside.is_file():
        return "rela"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def train_together(configs: list[Config], progress: Progress) -> None:
    """Train each config in a process of its own, the cores shared out: small products gain little from two threads."""
    threads = min(max((os.cpu_count() or 1) // len(configs), 1), 4)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with contextlib.ExitStack() as stack:
        running = {}
        for config in configs:
            directory = Path(config.train.directory)
            directory.mkdir(parents=True, exist_ok=True)
            save_config(config, directory / "experiment.yaml")
            command = [sys.executable, "-m", "rela", "train", "--quiet", str(directory / "experiment.yaml")]
            errors = stack.enter_context(tempfile.TemporaryFile())  # a pipe that nobody reads would fill
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
            running[directory] = stack.enter_context(process), errors
            stack.callback(process.terminate)
        while any(process.poll() is None for process, _ in running.values()):
            tell_progress(configs, progress)
            time.sleep(0.5)
        tell_progress(configs, progress)
        for directory, (process, errors) in running.items():
            if process.returncode:
                errors.seek(0)
                reason = errors.read().decode(errors="replace").strip().removeprefix("rela: error: ")
                raise RunFailed(f"training {directory.name} failed: {reason or f'exit code {process.returncode}'}")


def tell_progress(configs: list[Config], progress: Progress) -> None:
    """Read how far each run is from its log."""
    for config in configs:
        log = Path(config.train.directory) / "log.jsonl"
        rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.is_file() else []
        steps = [row for row in rows if row["event"] == "train"]
        if steps:
            name, last = Path(config.train.directory).name, steps[-1]
            progress(f"training {name}", last["step"], config.train.steps, f"loss {last['loss']:.3f}")


def make_corpus(directory: Path, say: Say) -> list[ToyPair]:
    """Write the embedded corpus once; the test pairs with their gold links."""
    if (directory / "corpus" / "test.align").is_file():
        return split(0, VALID, TEST, SEED)[2]  # the held-out pairs are the same whatever is drawn for training
    parts = split(TRAIN, VALID, TEST, SEED)
    say(f"writing the embedded corpus, {TRAIN:,} English–German pairs with gold links, to {directory / 'corpus'}")
    write_corpus(directory / "corpus", dict(zip(("train", "valid", "test"), parts, strict=True)))
    return parts[2]


def compare(directory: Path, translators: dict[str, Translator], test: list[ToyPair], progress: Progress) -> Report:
    """Every measure of section 5.2 with the corpus' gold links and known noise, as a folder of figures and tables."""
    from rela.report.parallel_text import ParallelText
    from rela.report.plot_command import PlotCommand
    from rela.report.write import analyse

    gold = [GoldLinks(frozenset(pair.links), frozenset(pair.links)) for pair in test]
    pairs = [(pair.source, pair.target) for pair in test]
    for translator in translators.values():
        assert translator.folder is not None
        if load_choice(translator.folder) is None:  # a model that was trained before this was part of training
            save_choice(translator.folder, choose_alone(translator, pairs))
    corpus = directory / "corpus"
    noisy = write_noise(corpus, test)
    files = [f"{kind}={corpus / kind}.en,{corpus / kind}.de" for kind in noisy]
    models = {kind: f"{kind}={directory / kind / 'model'}" for kind in translators}
    options = {"gold": corpus / "test.align", "noise": files, "seed": SEED, "device": "cpu"}
    return analyse(
        translators,
        ParallelText(pairs, gold, noise=noisy, seed=SEED),
        directory / "report",
        settings={"command": "rela demo", "corpus": "embedded English–German corpus"},
        plot=PlotCommand(models, str(corpus / "test.en"), str(corpus / "test.de"), options),
        progress=progress,
    )


def write_noise(corpus: Path, test: list[ToyPair]) -> dict[str, list[tuple[str, str]]]:
    """The test pairs made noisy in every way but shuffled, which the report does; also written beside the corpus."""
    noisy = {kind: add_noise(test, kind, SEED) for kind in NOISES if kind != "shuffled"}
    write_corpus(corpus, noisy)
    return {kind: [(pair.source, pair.target) for pair in pairs] for kind, pairs in noisy.items()}


def print_table(report: Report, scores: dict[str, Score]) -> None:
    """The two models side by side."""
    from rich.console import Console
    from rich.table import Table

    rows = {row["model"]: row for row in report.table()}
    table = Table(title="On held-out sentences, with the truth known by construction")
    table.add_column("")
    for kind in rows:
        table.add_column(kind, justify="right")

    def line(name: str, values: dict[str, float], digits: int) -> None:
        table.add_row(name, *(f"{values[kind]:.{digits}f}" for kind in rows))

    line("BLEU", {kind: score.value for kind, score in scores.items()}, 1)
    for name, key in (("AER, best head", "aer_best_head"), ("AER, best layer", "aer_best_layer")):
        best = {kind: 100 * min(row[f"{key}_normal"], row[f"{key}_shifted"]) for kind, row in rows.items()}
        line(name, best, 1)
    for type in ("encoder", "decoder", "cross"):
        line(f"sparsity rate, {type} attention", {kind: row[f"{type}_sparsity"] for kind, row in rows.items()}, 3)
    for name, key in (
        ("null rate, true pairs", "null_rate"),
        ("null rate, shuffled pairs", "null_rate_shuffled"),
        ("attention on </s>", "sink_mass"),
    ):
        line(name, {kind: row[key] for kind, row in rows.items()}, 3)
    for noise in NOISES:
        line(f"AUROC of null rate, {noise}", {kind: row[f"auroc_null_rate_{noise}"] for kind, row in rows.items()}, 3)
        line(
            f"AUROC of log-probability, {noise}",
            {kind: row[f"auroc_log_prob_{noise}"] for kind, row in rows.items()},
            3,
        )
    Console().print(table)
    for score in scores.values():
        print(score)


def print_translations(translator: Translator, test: list[ToyPair], count: int = 5) -> None:
    """Five translations, each with the weights of the head that aligns best drawn as a matrix of blocks."""
    from rich.console import Console

    console = Console()
    chosen = [pair for pair in test if 5 <= len(pair.source.split()) <= 9][:count]
    sources = [pair.source for pair in chosen]
    choice = Aligner(translator).choice
    console.print(
        f"\nFive translations with the weights of cross attention: {choice}"
        " (█ its largest weight, · exactly zero; a row of dots attends to nothing):"
    )
    translations = translator.translate(sources)
    for pair in capture(translator, zip(sources, translations, strict=True), ("cross",)):
        matrix = choice.word_matrix(pair["cross"])
        console.print(f"\n  {pair.source}  →  {pair.target}", highlight=False)
        console.print(
            draw_matrix(matrix, words(pair["cross"].keys)[:-1], words(pair["cross"].queries)[:-1]), highlight=False
        )


def draw_matrix(weights: torch.Tensor, sources: tuple[str, ...], targets: tuple[str, ...]) -> str:
    """Weights [T, S] as lines of text: a row for each target word, a column for each source word."""
    largest = max([1e-9, *weights.flatten().tolist()])
    margin = max(map(len, targets), default=0) + 4  # a model that has learnt nothing may say nothing
    widths = [max(len(word), 3) for word in sources]
    lines = [" " * margin + " ".join(word.center(width) for word, width in zip(sources, widths, strict=True))]
    for word, row in zip(targets, weights.tolist(), strict=True):
        cells = [shade(value / largest).center(width) for value, width in zip(row, widths, strict=True)]
        lines.append(f"{word:>{margin - 2}}  " + " ".join(cells))
    return "\n".join(lines)


def shade(share: float) -> str:
    """A block as dark as a weight is large, · where it is exactly zero."""
    return "·" if share == 0 else "░▒▓█"[min(int(share * 4), 3)] * 3
