"""Beam search with Transformer base by source length: every attention kind, and Hugging Face Marian (Figure 2).

    python -m benchmarks.decoding --marian --out results

Weights are random, so no hypothesis ends before its limit. Every system decodes as many tokens as each source has (the
limit, then a forced </s>), in bfloat16, with the same beam, batches and sentences. "mixed" means that lengths are
log-normal, as in real text. A batch of Marian then runs until its longest sentence ends, as `generate` does, and a
token is counted only while its sentence still needs it.

All systems run in one process and take turns pass by pass, forwards and backwards: first those that replay graphs, then
those whose kernels the host launches one by one. The speed of a run is the median of its passes. Rows have the median
of the runs, and ratios are between systems in the same run. The time of a system is measured from token ids to the best
hypotheses on the host. sparsemax and 1.5-entmax use the reference engine; "softmax:reference" is softmax in the same
engine. `--draw FILE` draws the figure from rows that were measured before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.common import add_sizes, facts, marian, median_ratio, model_config, rounded, sizes_of
from rela.config import DecodeConfig
from rela.data.subwords import EOS, PAD
from rela.decoding.beam import beam_search
from rela.decoding.engines.choose import Engines, why_not_graphs
from rela.decoding.engines.gpu_batches import split_batch
from rela.decoding.pipeline import SPECIAL
from rela.model.transformer import Transformer

Side = Callable[[list[list[int]]], None]
"""Translates a batch of sources, each to as many tokens as it has."""


def main() -> None:
    options = arguments()
    if options.draw:
        draw(read_rows(options.draw), options.draw.with_suffix(""))
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sides = {kind: rela_side(kind, options, device) for kind in options.kinds.split(",") if can_run(kind)}
    if options.marian:
        sides["marian"] = marian_side(options, device)
    lengths_of = {name: lengths_of_side(name, options).split(",") for name in sides}
    path = options.out / f"{options.name}.jsonl" if options.out else None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    for length in options.lengths.split(","):
        for batch in map(int, options.batches.split(",")):
            batches = draw_sources(length, batch, options)
            speeds: dict[str, Speeds] = {}
            # those that the host launches leave the device idle, and its clock low: not between the turns of the others
            for slow in (False, True):
                group = [name for name in sides if by_host(name) == slow and length in lengths_of[name]]
                # graphs compile the first time and capture the second
                warm_up = 1 if slow else 2
                speeds |= {name: Speeds(sides[name], batches, device, warm_up) for name in group}
                for _ in range(options.runs):
                    take_turns([speeds[name] for name in group], options.seconds)
            rows = [row_of(name, speeds, batch, length, options, device) for name in speeds]
            print_rows(rows)
            if path is not None:  # as they come, so that a run that is cut short leaves what it has measured
                with path.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
    if path is not None and find_spec("matplotlib"):
        draw(read_rows(path), path.with_suffix(""))


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kinds",
        default="softmax,rela-g,rela-i,sparsemax,entmax15,softmax:reference",
        help="attention kinds, compared with the first; KIND:reference uses the reference engine",
    )
    parser.add_argument(
        "--marian", action="store_true", help="also Hugging Face Marian of the same sizes, SDPA, bfloat16"
    )
    parser.add_argument("--batches", default="1,64", help="sentences decoded together")
    parser.add_argument("--lengths", default="30,mixed,10,60,20,40,80", help="source lengths")
    parser.add_argument("--mean-length", type=float, default=30.0, help="mean length of mixed sources")
    parser.add_argument("--marian-lengths", default="10,30,60,mixed", help="the source lengths for Marian")
    parser.add_argument(
        "--reference-lengths",
        default="10,30",
        help="the source lengths for the reference engine",
    )
    parser.add_argument(
        "--sentences", type=int, default=2, help="number of different sentences; at least one batch is decoded"
    )
    parser.add_argument("--seconds", type=float, default=0.2, help="mean seconds of a system in one run")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length-penalty", type=float, default=0.6)
    add_sizes(parser)
    parser.add_argument("--precision", default="bf16", help="bf16 or fp32")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for the rows and the figure")
    parser.add_argument("--name", default="decoding")
    parser.add_argument("--draw", type=Path, help="draw the figure of this file's rows and stop")
    return parser.parse_args()


def by_host(name: str) -> bool:
    """Whether the host launches every kernel of a side one by one, so that it is slow."""
    return name.startswith(("marian", "sparsemax", "entmax")) or name.endswith(":reference")


def lengths_of_side(name: str, options: argparse.Namespace) -> str:
    slow: str = options.marian_lengths if name == "marian" else options.reference_lengths
    return slow if by_host(name) else options.lengths


def can_run(kind: str) -> bool:
    needs_package = kind.startswith(("sparsemax", "entmax"))
    if needs_package and not find_spec("entmax"):
        print(f"{kind} left out: the entmax package is not installed")
    return not needs_package or bool(find_spec("entmax"))


def draw_sources(length: str, batch: int, options: argparse.Namespace) -> list[list[list[int]]]:
    """Batches of random ids, the same for every side."""
    generator = torch.Generator().manual_seed(1)
    count = -(-options.sentences // batch) * batch
    if length == "mixed":
        logarithms = 0.6 * torch.randn(count, generator=generator) - 0.18
        lengths = (options.mean_length * torch.exp(logarithms)).clamp(1, 200).long().tolist()
    else:
        lengths = [int(length)] * count
    sources = [torch.randint(4, options.vocabulary, (n,), generator=generator).tolist() for n in lengths]
    return [sources[start : start + batch] for start in range(0, count, batch)]


def rela_side(name: str, options: argparse.Namespace, device: torch.device) -> Side:
    """Our own search, as the Translator runs it: on the device where it can, else the reference."""
    torch.manual_seed(1)
    kind, _, engine = name.partition(":")
    model = Transformer(model_config(kind, options, max_length=256)).to(device).eval()
    decode = DecodeConfig(
        beam=options.beam, length_penalty=options.length_penalty, precision=options.precision, engine=engine or "auto"
    )
    engines = Engines(model)
    if not engine and (reason := why_not_graphs(model, decode)):
        print(f"{kind} by the reference: {reason}")

    @torch.inference_mode()
    def translate(sources: list[list[int]]) -> None:
        limits = [len(source) for source in sources]
        gpu_engine = engines.gpu_engine(decode)
        if gpu_engine is not None:
            found = list(gpu_engine.launch(split_batch(sources, limits, options.beam), nbest=1)())
        else:
            with engines.autocast(decode):
                found = beam_search(
                    engines.stepwise_engine(decode),
                    sources,
                    torch.tensor(limits, device=device),
                    beam=decode.beam,
                    special=SPECIAL,
                    alpha=decode.length_penalty,
                )
        assert all(len(best[0].tokens) == limit for best, limit in zip(found, limits, strict=True))

    return translate


def marian_side(options: argparse.Namespace, device: torch.device) -> Side:
    """Hugging Face Marian of the same sizes: `generate` with its cache, SDPA."""
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    ids_of = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
    model = marian(options, max_position_embeddings=512, **ids_of).to(device, dtype).eval()

    @torch.inference_mode()
    def translate(sources: list[list[int]]) -> None:
        longest = max(map(len, sources)) + 1
        ids = torch.tensor([[*source, EOS] + [PAD] * (longest - 1 - len(source)) for source in sources], device=device)
        found = model.generate(
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=options.beam,
            length_penalty=options.length_penalty,
            min_new_tokens=longest,
            max_new_tokens=longest,
            do_sample=False,
        )
        assert found.cpu().size(1) == longest + 1

    return translate


class Speeds:
    """The speed of one side on some batches, run by run."""

    def __init__(self, side: Side, batches: list[list[list[int]]], device: torch.device, warm_up: int) -> None:
        self.side, self.batches, self.device = side, batches, device
        self.tokens = sum(len(source) + 1 for batch in batches for source in batch)
        self.measured: list[float] = []
        for _ in range(warm_up):
            self.time_pass()

    def time_pass(self) -> float:
        """Seconds for all batches once."""
        self.wait()
        started = time.perf_counter()
        for batch in self.batches:
            self.side(batch)
        self.wait()
        return time.perf_counter() - started

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def take_turns(sides: list[Speeds], seconds: float) -> None:
    """One run: passes of all sides in turn, so that what drifts, drifts for all; `seconds` for each in the mean."""
    passes: list[list[float]] = [[] for _ in sides]
    in_order = list(zip(sides, passes, strict=True))
    while sum(map(sum, passes)) < seconds * len(sides):
        for side, times in in_order:
            times.append(side.time_pass())
        in_order.reverse()
    for side, times in in_order:
        side.measured.append(side.tokens / statistics.median(times))


def row_of(
    name: str, speeds: dict[str, Speeds], batch: int, length: str, options: argparse.Namespace, device: torch.device
) -> dict:
    """One side at one batch size and source length, with all that the measurement depends on."""
    measured = {side: found.measured for side, found in speeds.items()}
    mine = speeds[name]
    median = statistics.median(mine.measured)
    sentences = sum(map(len, mine.batches))
    return {
        "side": name,
        "batch": batch,
        "source_length": length,
        "tokens_per_second": round(median),
        "milliseconds_a_sentence": round(1000 * sentences**-1 * mine.tokens / median, 3),
        "spread": round((max(mine.measured) - min(mine.measured)) / median, 4),
        "ratio_to_first": rounded(median_ratio(measured, name, next(iter(speeds))), 3),
        "ratio_to_marian": rounded(median_ratio(measured, name, "marian"), 3),
        "runs": options.runs,
        "sentences": sentences,
        "seconds_a_run": options.seconds,
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "precision": options.precision,
        **sizes_of(options),
        **facts(device),
    }


def print_rows(rows: list[dict]) -> None:
    for row in rows:
        marian = "" if row["ratio_to_marian"] is None else f"  {row['ratio_to_marian']:6.2f}× marian"
        shape = f"batch {row['batch']:3d} length {row['source_length']:>5s}"
        speed = f"{row['tokens_per_second']:>10,} tokens/s ± {row['spread']:.0%}"
        print(f"{shape} {row['side']:17s} {speed}  {row['ratio_to_first']:.3f}×{marian}", flush=True)


def draw(rows: list[dict], path: Path) -> None:
    """Speed by source length, a panel for each batch size; below it, the ratio to the first side if by graphs."""
    from rela.plots.style import SMALL, TEXT, line_styles, new_figure, save_figure

    batches = sorted({row["batch"] for row in rows})
    names = list(dict.fromkeys(row["side"] for row in rows))
    styles = line_styles(names)
    panels = new_figure(height=4.2).subplots(2, len(batches), squeeze=False, sharex="col", height_ratios=(3, 2))
    for panel in panels[1, 1:]:
        panel.sharey(panels[1, 0])
    for axes, batch in zip(panels.T, batches, strict=True):
        for name in names:
            points = sorted(
                (int(row["source_length"]), row["tokens_per_second"], row["ratio_to_first"])
                for row in rows
                if row["side"] == name and row["batch"] == batch and row["source_length"].isdigit()
            )
            style = styles[name]
            lengths, speeds, ratios = zip(*points, strict=True)
            for panel, values in zip(axes, (speeds, ratios), strict=True):
                if panel is axes[0] or not by_host(name):
                    panel.plot(
                        lengths, values, color=style.color, marker=style.marker, markersize=style.size, label=name
                    )
        axes[0].set_yscale("log")
        axes[0].set_title(f"batch {batch}", fontsize=TEXT)
        axes[1].set_xlabel("source length (subwords)", fontsize=TEXT)
        for panel in axes:
            panel.tick_params(labelsize=SMALL)
            panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("target tokens a second", fontsize=TEXT)
    panels[1, 0].set_ylabel(f"speed / {names[0]}", fontsize=TEXT)
    panels[0, 0].figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(len(names), 4),
        fontsize=SMALL,
        frameon=False,
    )
    save_figure(panels[0, 0], path)


if __name__ == "__main__":
    main()
