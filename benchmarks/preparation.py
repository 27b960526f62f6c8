"""Time and memory of preparing a synthetic corpus and of reading batches from it, each in its own process.

    python -m benchmarks.preparation --lines 5000000 --output results/preparation.json

The corpus is generated: words of random syllables, drawn by Zipf's law, 20 to a sentence on average. In the
"translation", each word is replaced by a word of another generated lexicon. This process imports only the standard
library, because Linux counts the memory of a parent process into the peak memory of the process that it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

WORDS = 200_000
TOKENS = 25_000


def peak_megabytes() -> float:
    """The largest resident set of this process so far; mapped file pages count."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


def generate(folder: Path, lines: int) -> dict[str, Any]:
    """Write train.source and train.target."""
    import numpy as np

    generator = np.random.default_rng(0)
    syllables = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("", "n", "r", "s", "t")]

    def lexicon() -> list[str]:
        counts = 1 + generator.integers(0, 4, WORDS)
        return ["".join(syllables[i] for i in generator.integers(0, len(syllables), n)) for n in counts]

    lexicons = np.array(lexicon(), dtype=object), np.array(lexicon(), dtype=object)
    cumulative = np.cumsum(1 / np.arange(1, WORDS + 1))
    characters = 0
    with (folder / "train.source").open("w") as source, (folder / "train.target").open("w") as target:
        for start in range(0, lines, 10_000):
            lengths = np.clip(generator.lognormal(2.85, 0.55, min(10_000, lines - start)), 1, 100).astype(int)
            ends = np.cumsum(lengths)
            drawn = np.searchsorted(cumulative, generator.random(ends[-1]) * cumulative[-1])
            for file, words in zip((source, target), lexicons, strict=True):
                text = words[drawn]
                block = "".join(" ".join(text[end - n : end]) + "\n" for end, n in zip(ends, lengths, strict=True))
                characters += file.write(block)
    return {"lines": lines, "characters": characters}


def prepare(folder: Path, sample: int) -> dict[str, Any]:
    """Run `prepare` with the default settings and the given vocabulary sample."""
    from rela.config import CorpusConfig, DataConfig
    from rela.data.prepare import prepare

    stages: dict[str, float] = {}
    started = time.monotonic()

    def progress(stage: str, done: int, total: int | None) -> None:
        stages[stage] = round(time.monotonic() - started, 1)

    train = (CorpusConfig("train.source", "train.target"),)
    directory = str(folder / "prepared")
    config = DataConfig(root=str(folder), train=train, directory=directory, vocabulary_sample=sample)
    report = prepare(config, progress)
    split = report.splits["train"]
    return {
        "seconds": round(report.seconds, 1),
        "seconds_at_end_of_stage": stages,
        "peak_megabytes": peak_megabytes(),
        "vocabulary_size": report.vocabulary_size,
        "vocabulary_sample": sample,
        "pairs": split.pairs,
        "source_tokens": split.source_tokens,
        "target_tokens": split.target_tokens,
        "shards": split.shards,
    }


def load(folder: Path, static: bool) -> dict[str, Any]:
    """Read one epoch of batches, as training does."""
    from rela.data.batching import BatchStream, PreparedCorpus

    imports = peak_megabytes()
    corpus = PreparedCorpus.open(folder / "prepared", "train")
    started = time.monotonic()
    batches = tokens = source_tokens = source_room = 0
    with BatchStream(corpus, TOKENS, seed=1, static=static) as stream:
        for batch in stream:
            batches += 1
            tokens += batch.target_tokens
            source_tokens += int(batch.source_packing.cu_seqlens[-1])
            source_room += len(batch.source)
            if stream.position["epoch"] == 1:
                break
    seconds = time.monotonic() - started
    fill = {"source_fill": round(source_tokens / source_room, 4)} if static else {}
    return {
        "static": static,
        "tokens_a_batch": TOKENS,
        "batches": batches,
        "target_tokens": tokens,
        "seconds": round(seconds, 1),
        "target_tokens_a_second": round(tokens / seconds),
        "target_fill": round(tokens / (batches * TOKENS), 4),
        **fill,
        "peak_megabytes": peak_megabytes(),
        "of_which_imports_megabytes": imports,
    }


def run_stage(*arguments: str) -> dict[str, Any]:
    """One stage in a fresh process; its last line of output is its result."""
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    print(" ".join(arguments[:2]), json.dumps(result), file=sys.stderr)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--sample", type=int, default=2_000_000, help="lines the vocabulary is learnt from")
    parser.add_argument("--output", type=Path, help="where the JSON result goes (default: only shown)")
    parser.add_argument("--work", type=Path, help="folder for the corpus (default: a temporary one)")
    parser.add_argument("--stage", choices=("generate", "prepare", "load", "load-static"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        result = {
            "generate": lambda: generate(options.work, options.lines),
            "prepare": lambda: prepare(options.work, options.sample),
            "load": lambda: load(options.work, static=False),
            "load-static": lambda: load(options.work, static=True),
        }[options.stage]()
        print(json.dumps(result))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        shared = ["--work", str(work), "--lines", str(options.lines), "--sample", str(options.sample)]
        result = {
            "command": f"python -m benchmarks.preparation --lines {options.lines} --sample {options.sample}",
            "machine": {"cores": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("numpy", "sentencepiece", "torch")},
            "bars": {"prepare_megabytes": 1500, "load_megabytes": 500},
            "corpus": run_stage("--stage", "generate", *shared),
            "prepare": run_stage("--stage", "prepare", *shared),
            "load": run_stage("--stage", "load", *shared),
            "load_static": run_stage("--stage", "load-static", *shared),
        }
    text = json.dumps(result, indent=1)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
