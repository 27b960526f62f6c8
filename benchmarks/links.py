"""The cost of word links in translation: `rela translate --alignments` against plain translation.

    python -m benchmarks.links --out results
    python -m benchmarks.links --model models/en-de --text test.en --device cuda --precisions bf16 --name links-gpu

Translates sentences of the embedded corpus with `Translator.translate_nbest`, with random weights and a small
vocabulary. So a step is cheaper than that of a trained model, and the links take a larger share. With `--model` and
`--text` it translates that text with a trained model instead. Three variants take turns in one process: plain, links
from the decode steps, and links by a second, forced pass. Times are CPU times, or wall-clock times on a GPU, and ratios
are medians over turns. The fastest turns are compared, too: other programs on the host only add time. On a GPU the
kernels alone are timed as well.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch

from benchmarks.clocks import kernel_time
from benchmarks.common import add_sizes, facts, model_config, sizes_of
from rela.alignment.choose import Aligner
from rela.alignment.online import OnlineLinks
from rela.config import Config
from rela.data.corpus import read_lines
from rela.data.subwords import has_no_break, train_subwords
from rela.decoding.translate import Translator
from rela.files import write_text
from rela.model.transformer import Transformer
from rela.toy import generate


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.model:
        translator = Translator.load(options.model, options.device)
        lines = list(islice(read_lines(options.text), options.sentences))
    else:
        translator = random_translator(options)
        lines = [pair.source for pair in generate(options.sentences, seed=3)]
    clock = time.process_time if translator.device.type == "cpu" else time.perf_counter
    rows = []
    for precision in options.precisions.split(","):
        seconds: dict[str, list[float]] = {}
        calls = sides(translator, lines, options, precision)
        for turn in range(options.turns + 1):
            for name in random.Random(turn).sample(list(calls), len(calls)):  # what ran before has an influence
                started = clock()
                calls[name]()
                if turn:  # the first only warms up
                    seconds.setdefault(name, []).append(clock() - started)
        row = row_of(seconds, precision, len(lines), options)
        if translator.device.type == "cuda":  # apart from the host, whose time varies
            for name, call in calls.items():
                row[f"kernel seconds {name}"] = round(kernel_time(call, 1) / 1e6, 4)
        rows.append(row | agreement(translator, lines, options, precision))
        print(
            rows[-1]["precision"], {name: rows[-1][name] for name in rows[-1] if name.startswith("slower")}, flush=True
        )
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / f"{options.name}.json", json.dumps(rows, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="rela-g")
    parser.add_argument("--precisions", default="int8,fp32")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--beam", type=int, default=4)
    add_sizes(parser)
    parser.set_defaults(vocabulary=1000)
    parser.add_argument("--model", type=Path, help="a model folder instead of random weights")
    parser.add_argument("--text", type=Path, help="with --model: the sentences to translate")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-second-pass", dest="second_pass", action="store_false", help="leave out the third")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the rows")
    parser.add_argument("--name", default="links")
    given = parser.parse_args()
    if bool(given.model) != bool(given.text):
        parser.error("--model and --text go together")
    if given.device != "cpu" and not given.model:
        parser.error("--device needs --model and --text")
    return given


def random_translator(options: argparse.Namespace) -> Translator:
    torch.manual_seed(1)
    text = (text for pair in generate(3000, seed=1) for text in (pair.source, pair.target))
    subwords = train_subwords(text, options.vocabulary)
    shape = model_config(options.kind, options, max_length=256)
    return Translator(Transformer(shape), subwords, Config(model=shape), "cpu")


def sides(
    translator: Translator, lines: list[str], options: argparse.Namespace, precision: str
) -> dict[str, Callable[[], None]]:
    """What is timed, by name; random weights never end a sentence, so their translation is as long as its source."""
    search = search_options(options, precision)
    aligner, links = Aligner(translator), OnlineLinks(translator)

    def plain() -> None:
        translator.translate_nbest(lines, **search)

    def online() -> None:
        translator.translate_nbest(lines, links=links, **search)

    def forced() -> None:
        list(aligner.align(lines, translator.translate(lines, **search)))

    sides = {"plain": plain, "links": online, "second pass": forced}
    return sides if options.second_pass else {name: sides[name] for name in ("plain", "links")}


def agreement(translator: Translator, lines: list[str], options: argparse.Namespace, precision: str) -> dict[str, int]:
    """How many of the first 300 translations have the links of a forced pass in float32 over the same subwords.

    Search may spell a word by other subwords than the encoder of text; the links of the text's own are not compared.
    """
    links, lines = OnlineLinks(translator), lines[:300]
    found = translator.translate_nbest(lines, links=links, **search_options(options, precision))
    best = [nbest[0] for nbest in found]
    sources = [translator.subwords.source.encode(line) for line in lines]
    equal = sum(
        one.links == links.read(source, one.tokens, None, line if has_no_break(line) else "")
        for source, one, line in zip(sources, best, lines, strict=True)
    )
    return {"sentences compared": len(best), "sentences with equal links": equal}


def search_options(options: argparse.Namespace, precision: str) -> dict[str, float | int | str]:
    """How both sides search."""
    search: dict[str, float | int | str] = {"beam": options.beam, "precision": precision}
    return search if options.model else search | {"max_length_ratio": 1.0, "max_length_extra": 0}


def row_of(seconds: dict[str, list[float]], precision: str, sentences: int, options: argparse.Namespace) -> dict:
    """The seconds of each side, and how much slower than plain the others are."""
    row = {
        "kind": options.kind,
        "precision": precision,
        **{f"seconds {name}": round(statistics.median(values), 3) for name, values in seconds.items()},
    }
    for name in (side for side in seconds if side != "plain"):
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["plain"], strict=True))
        row[f"slower {name}"] = round(ratio - 1, 4)
        row[f"slower {name}, fastest turns"] = round(min(seconds[name]) / min(seconds["plain"]) - 1, 4)
    spread = (max(seconds["plain"]) - min(seconds["plain"])) / statistics.median(seconds["plain"])
    return {
        **row,
        "spread": round(spread, 3),
        "sentences": sentences,
        "beam": options.beam,
        "threads": options.threads,
        "turns": options.turns,
        **({"model": str(options.model), "text": options.text.name} if options.model else sizes_of(options)),
        **facts(torch.device(options.device)),
    }


if __name__ == "__main__":
    main()
