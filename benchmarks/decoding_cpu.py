"""Beam search with Transformer base on a CPU: ours in int8 and fp32, CTranslate2 in both, Hugging Face Marian.

    pip install -e '.[mt,bench]'
    python -m benchmarks.decoding_cpu --out results

Weights are random, and random weights never end a sentence. So every system takes exactly `--steps` decoder steps with
the same beam over the same batches of sources. Source lengths are log-normal, as in real text, and sorted, as they are
when a file is translated. The time is measured from token ids to hypotheses. Systems take turns, each in its own
process, after a pause in which the threads of the previous one become idle: in one process, the threads of CTranslate2
cost PyTorch a third of its speed (`--together` shows this). Speeds are medians over the turns, ratios are medians of
each turn's ratio. CTranslate2 and Marian use softmax attention. Systems that are not installed are left out.
`--profile` prints our own operations instead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.common import add_sizes, facts, marian, median_ratio, model_config, rounded, sizes_of
from rela.config import DecodeConfig
from rela.data.subwords import EOS, PAD
from rela.decoding.beam import beam_search
from rela.decoding.engines.int8 import Int8Engine
from rela.decoding.engines.reference import ReferenceEngine
from rela.decoding.pipeline import SPECIAL
from rela.files import write_text
from rela.model.transformer import Transformer

Side = Callable[[list[list[int]]], None]
"""Translates a batch of sources by `--steps` decoder steps."""
Timed = Callable[[list[list[list[int]]]], float]
"""Tokens a second over some batches."""


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.profile:
        profile(options)
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        timed: dict[str, Timed] = {}
        for name in side_names(options):
            if options.together:
                timed[name] = partial(tokens_per_second, make_side(name, options, Path(folder)), options)
            else:
                timed[name] = stack.enter_context(own_process(name, options, Path(folder)))
        rows = []
        for batch in map(int, options.batches.split(",")):
            batches = draw_sources(batch, options)
            speeds: dict[str, list[float]] = {name: [] for name in timed}
            for turn in range(options.turns + 1):
                for name, measure in timed.items():
                    speed = measure(batches if turn else batches[:1])
                    if turn:  # the first only warms up
                        speeds[name].append(speed)
            rows += [row_of(name, speeds, batch, batches, options) for name in speeds]
            print_rows(rows[-len(speeds) :])
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / f"{options.name}.json", json.dumps(rows, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="rela-g,softmax,rela-i", help="our attention kinds, in int8")
    parser.add_argument("--batches", default="1,32", help="sentences decoded together")
    parser.add_argument(
        "--sentences",
        type=int,
        default=64,
        help="sentences in a turn with large batches; an eighth of them with batch 1",
    )
    parser.add_argument("--mean-length", type=float, default=25.0, help="mean subwords of a source")
    parser.add_argument("--steps", type=int, default=25, help="decoder steps of each translation")
    parser.add_argument("--beam", type=int, default=4)
    add_sizes(parser)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rest", type=float, default=0.5, help="seconds of pause before a system is timed")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: the CPU time of all threads together"
    )
    parser.add_argument("--together", action="store_true", help="run all systems in one process")
    parser.add_argument("--only", default="", help="measure only systems with this text in their names")
    parser.add_argument("--out", type=Path, help="folder for the rows")
    parser.add_argument("--name", default="decoding-cpu")
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def side_names(options: argparse.Namespace) -> list[str]:
    names = [f"{kind} int8" for kind in options.kinds.split(",")] + [f"{options.kinds.split(',')[0]} fp32"]
    if find_spec("ctranslate2"):
        names += ["ctranslate2 int8", "ctranslate2 fp32"]
    if find_spec("transformers"):
        names.append("marian fp32")
    return [name for name in names if options.only in name]


def make_side(name: str, options: argparse.Namespace, folder: Path) -> Side:
    toolkit, precision = name.split()
    if toolkit == "ctranslate2":
        return ctranslate2_side({"int8": "int8", "fp32": "float32"}[precision], options, folder)
    return marian_side(options) if toolkit == "marian" else rela_side(toolkit, precision, options)


@contextlib.contextmanager
def own_process(name: str, options: argparse.Namespace, folder: Path) -> Iterator[Timed]:
    """A side in a process of its own, which waits while it is not asked."""
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    worker = processes.Process(target=serve, args=(name, options, folder, there), daemon=True)
    worker.start()

    def measure(batches: list[list[list[int]]]) -> float:
        here.send(batches)
        return here.recv()

    try:
        yield measure
    finally:
        worker.kill()


def serve(name: str, options: argparse.Namespace, folder: Path, pipe: Connection) -> None:
    torch.set_num_threads(options.threads)
    side = make_side(name, options, folder)
    while True:
        pipe.send(tokens_per_second(side, options, pipe.recv()))


def draw_sources(batch: int, options: argparse.Namespace) -> list[list[list[int]]]:
    """Batches of random ids, sorted by length, the same for every side; single sentences in no order."""
    generator = torch.Generator().manual_seed(1)
    count = max(options.sentences // 8, 1) if batch == 1 else -(-options.sentences // batch) * batch
    logarithms = 0.6 * torch.randn(count, generator=generator) - 0.18
    lengths = (options.mean_length * torch.exp(logarithms)).clamp(1, 150).long().tolist()
    if batch > 1:
        lengths.sort(reverse=True)
    sources = [torch.randint(4, options.vocabulary, (n,), generator=generator).tolist() for n in lengths]
    return [sources[start : start + batch] for start in range(0, count, batch)]


def random_model(kind: str, options: argparse.Namespace) -> Transformer:
    torch.manual_seed(1)
    return Transformer(model_config(kind, options, max_length=256)).eval()


def rela_side(kind: str, precision: str, options: argparse.Namespace) -> Side:
    """Our own search, as the Translator runs it on a CPU."""
    model = random_model(kind, options)
    engine = Int8Engine(model) if precision == "int8" else ReferenceEngine(model)
    alpha = DecodeConfig().length_penalty

    @torch.inference_mode()
    def translate(sources: list[list[int]]) -> None:
        limits = torch.full((len(sources),), options.steps - 1)
        found = beam_search(engine, sources, limits, beam=options.beam, special=SPECIAL, alpha=alpha)
        assert all(len(best[0].tokens) == options.steps - 1 for best in found)  # and </s>

    return translate


def ctranslate2_side(precision: str, options: argparse.Namespace, folder: Path) -> Side:
    """CTranslate2 with a model of the same sizes, through its own specification of one."""
    import ctranslate2

    path = folder / precision
    write_ctranslate2_model(path, precision, options)
    translator = ctranslate2.Translator(
        str(path), compute_type=precision, inter_threads=1, intra_threads=options.threads
    )
    words = vocabulary_of(options)

    def translate(sources: list[list[int]]) -> None:
        found = translator.translate_batch(
            [[*(words[token] for token in source), "</s>"] for source in sources],
            beam_size=options.beam,
            length_penalty=DecodeConfig().length_penalty,
            min_decoding_length=options.steps,
            max_decoding_length=options.steps,
        )
        assert all(len(result.hypotheses[0]) == options.steps for result in found)

    return translate


def vocabulary_of(options: argparse.Namespace) -> list[str]:
    return ["<blank>", "<unk>", "<s>", "</s>", *(f"w{i}" for i in range(4, options.vocabulary))]


def write_ctranslate2_model(path: Path, precision: str, options: argparse.Namespace) -> None:
    """A post-norm Transformer with random weights, one matrix for all three embeddings."""
    from ctranslate2.specs import TransformerSpec, common_spec

    width, random = options.width, np.random.default_rng(1)
    spec = TransformerSpec.from_config(
        (options.layers, options.layers), width // 64 or 1, pre_norm=False, activation=common_spec.Activation.RELU
    )

    def linear(layer: Any, inner: int, outputs: int) -> None:
        layer.weight = (random.standard_normal((outputs, inner)) * (2 / (inner + outputs)) ** 0.5).astype("float32")
        layer.bias = np.zeros(outputs, "float32")

    def norm(layer: Any) -> None:
        layer.gamma, layer.beta = np.ones(width, "float32"), np.zeros(width, "float32")

    def attention(layer: Any, outputs: tuple[int, ...]) -> None:
        norm(layer.layer_norm)
        for part, size in zip(layer.linear, outputs, strict=True):
            linear(part, width, size)

    def feed_forward(layer: Any) -> None:
        norm(layer.layer_norm)
        linear(layer.linear_0, width, 4 * width)
        linear(layer.linear_1, 4 * width, width)

    table = (random.standard_normal((options.vocabulary, width)) * width**-0.5).astype("float32")
    positions = random_model_positions(width)
    for side, embedding in ((spec.encoder, spec.encoder.embeddings[0]), (spec.decoder, spec.decoder.embeddings)):
        embedding.weight, side.scale_embeddings = table, True
        side.position_encodings.encodings = positions
        for layer in side.layer:
            attention(layer.self_attention, (3 * width, width))
            if side is spec.decoder:
                attention(layer.attention, (width, 2 * width, width))
            feed_forward(layer.ffn)
    spec.decoder.projection.weight, spec.decoder.projection.bias = table, np.zeros(options.vocabulary, "float32")
    spec.register_source_vocabulary(vocabulary_of(options))
    spec.register_target_vocabulary(vocabulary_of(options))
    spec.validate()
    if precision == "int8":
        spec.optimize(quantization="int8")
    path.mkdir()
    spec.save(str(path))


def random_model_positions(width: int) -> NDArray[np.float32]:
    """The positions of our own Transformer, which CTranslate2 takes as an array."""
    from rela.model.embedding import sinusoids

    positions: NDArray[np.float32] = sinusoids(256, width).numpy()
    return positions


def marian_side(options: argparse.Namespace) -> Side:
    """Hugging Face Marian of the same sizes: `generate` with its cache, SDPA, float32."""
    ids_of = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
    model = marian(options, max_position_embeddings=256, **ids_of).eval()

    @torch.inference_mode()
    def translate(sources: list[list[int]]) -> None:
        longest = max(map(len, sources)) + 1
        ids = torch.tensor([[*source, EOS] + [PAD] * (longest - 1 - len(source)) for source in sources])
        found = model.generate(
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=options.beam,
            do_sample=False,
            length_penalty=DecodeConfig().length_penalty,
            min_new_tokens=options.steps,
            max_new_tokens=options.steps,
        )
        assert found.size(1) == options.steps + 1

    return translate


def tokens_per_second(side: Side, options: argparse.Namespace, batches: list[list[list[int]]]) -> float:
    time.sleep(options.rest)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    started = clock()
    for batch in batches:
        side(batch)
    return sum(map(len, batches)) * options.steps / (clock() - started)


def row_of(name: str, speeds: dict[str, list[float]], batch: int, batches: list, options: argparse.Namespace) -> dict:
    """One side at one batch size, with all that the measurement depends on."""
    mine = speeds[name]
    median = statistics.median(mine)

    def ratio_to(other: str) -> float | None:
        return rounded(median_ratio(speeds, name, other), 3)

    return {
        "side": name,
        "batch": batch,
        "tokens_per_second": round(median, 1),
        "milliseconds_a_step": round(1000 * batch / median, 2),
        "spread": round((max(mine) - min(mine)) / median, 3),
        "ratio_to_ctranslate2_int8": ratio_to("ctranslate2 int8"),
        "ratio_to_ctranslate2_fp32": ratio_to("ctranslate2 fp32"),
        "ratio_to_marian": ratio_to("marian fp32"),
        "ratio_to_softmax_int8": ratio_to("softmax int8"),
        "turns": options.turns,
        "sentences": sum(map(len, batches)),
        "mean_source": round(statistics.mean(len(source) for group in batches for source in group), 1),
        "steps": options.steps,
        "beam": options.beam,
        "threads": options.threads,
        "clock": options.clock,
        **sizes_of(options),
        "load": round(os.getloadavg()[0], 2),
        **{package: version(package) for package in ("ctranslate2", "transformers") if find_spec(package)},
        **facts(torch.device("cpu")),
        "device": cpu_model(),
    }


def cpu_model() -> str:
    """The processor's name and what it has for eight bits."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "cpu"
    fields = dict(line.split(":", 1) for line in text.split("\n\n")[0].replace("\t", "").splitlines() if ":" in line)
    flags = fields.get("flags", "").split()
    return " ".join([fields.get("model name", "cpu").strip(), *(x for x in ("avx512_vnni", "amx_int8") if x in flags)])


def print_rows(rows: list[dict]) -> None:
    for row in rows:
        ratios = "".join(
            f"  {row[f'ratio_to_{key}']:5.2f}× {name}"
            for key, name in (("ctranslate2_int8", "CT2 int8"), ("ctranslate2_fp32", "CT2 fp32"), ("marian", "Marian"))
            if row[f"ratio_to_{key}"] is not None
        )
        speed = f"{row['tokens_per_second']:>8,.0f} tokens/s ± {row['spread']:.0%}"
        print(f"batch {row['batch']:3d} {row['side']:17s} {speed}{ratios}", flush=True)


def profile(options: argparse.Namespace) -> None:
    """Where the time of our own int8 steps goes, by operation."""
    side = rela_side(options.kinds.split(",")[0], "int8", options)
    for batch in map(int, options.batches.split(",")):
        sources = draw_sources(batch, options)[0]
        side(sources)
        with torch.profiler.profile() as record:
            side(sources)
        print(record.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40))


if __name__ == "__main__":
    main()
