"""A training step of Transformer base: every attention kind against softmax and Hugging Face Marian (Table 2).

    python -m benchmarks.training --out results/training

All systems see the same sentences. Each has its own process, so that they compile in parallel; they take turns on the
device. The ratio is that of target tokens per second to those of softmax, the median over the turns. Batches are on the
device before the clock starts. `--loader KIND` also compares such steps with steps on batches that the trainer's loader
reads and packs at the same time. `--profile KIND` prints how the time of a step is spent, and `--draw FILE` draws the
figure from rows that were measured before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import add_sizes, facts, marian, median_ratio, model_config, rounded, sizes_of
from rela.data.batching import Batch, BatchStream, PreparedCorpus, StaticShape, pack
from rela.data.shards import IDS, ShardWriter
from rela.model.transformer import Transformer
from rela.training.graphed import GraphedStep
from rela.training.loss import Objective, objective_inputs

PROFILED = 3  # steps
STARTED = time.perf_counter()


def main() -> None:
    options = arguments()
    if options.draw:
        draw(json.loads(options.draw.read_text(encoding="utf-8")), options.draw.with_suffix(""))
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    names = options.kinds.split(",") + (["marian"] if options.marian else [])
    with contextlib.ExitStack() as stack:
        sides = {name: stack.enter_context(own_process(name, options)) for name in names}
        warm = {}
        for name, side in sides.items():
            warm[name] = side.recv()
            print(f"{name} is warm after {time.perf_counter() - STARTED:.0f} s", flush=True)
        if options.hold:
            sys.stdin.readline()
        speeds: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(options.turns):
            for name in names:
                speeds[name].append(asked(sides[name], "turn"))
                print(f"turn {turn + 1} {name:12s} {speeds[name][-1]:12,.0f} target tokens/s", flush=True)
        rows = [row_of(name, speeds, warm[name], options, device) for name in names]
        print_table(rows)
        if options.loader:
            loader = {"side": options.loader, **asked(sides[options.loader], "loader"), **facts(device)}
            resident = f"{loader['resident']} ms a step on batches in memory"
            print(
                f"{loader['side']}: {resident}, {loader['streamed']} from the loader, {loader['waited']} of it waiting"
            )
            rows.append(loader)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{options.name}.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
            if find_spec("matplotlib"):
                draw(rows, options.out / options.name)
        for name in filter(None, options.profile.split(",")):
            print(f"{name}: {asked(sides[name], 'profile')}", flush=True)


@dataclass(frozen=True)
class Side:
    """What a side trains on, batch by batch, and its loss a token; `loader` gives further batches of the same shape."""

    train: Callable[[Any], torch.Tensor]
    batches: list[Any]
    tokens: list[int]
    loader: Iterator[Batch] | None = None

    def step(self, i: int) -> torch.Tensor:
        """Train on the i-th batch, modulo their number; its loss, overwritten by the next step."""
        return self.train(self.batches[i % len(self.batches)])


@contextlib.contextmanager
def own_process(name: str, options: argparse.Namespace) -> Iterator[Connection]:
    """A side in a process of its own, which waits while it is not asked."""
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    worker = processes.Process(target=serve, args=(name, options, there))
    worker.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        worker.join(10)
        worker.kill()


def asked(side: Connection, question: str) -> Any:
    """The answer of a side to a question."""
    side.send(question)
    return side.recv()


def serve(name: str, options: argparse.Namespace, questions: Connection) -> None:
    """Warm a side up, answer with its losses and its peak memory, and then to each question until there are no more."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pairs = sentence_pairs(options)
    with contextlib.ExitStack() as stack:
        side = (
            marian_side(pairs, options, device) if name == "marian" else rela_side(name, pairs, options, device, stack)
        )
        losses = [float(side.step(i)) for i in range(max(options.warmup, options.batches))]
        # Recorded steps are included: the warm-up recorded them.
        memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
        questions.send(
            {"peak_memory_gib": memory, "first_loss": round(losses[0], 3), "last_loss": round(losses[-1], 3)}
        )
        answers: dict[str, Callable[[], Any]] = {
            "turn": lambda: speed(side, options.steps, device),
            "loader": lambda: loading(side, options.steps, device),
            "profile": lambda: profile(side, device),
        }
        with contextlib.suppress(EOFError):
            while True:
                questions.send(answers[questions.recv()]())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="softmax,rela-g,rela-i", help="attention kinds, compared with the first")
    parser.add_argument(
        "--marian", action="store_true", help="also Hugging Face Marian of the same sizes, SDPA, compiled"
    )
    parser.add_argument("--tokens", type=int, default=25_000, help="target tokens in a step")
    parser.add_argument("--mean-length", type=float, default=30.0, help="mean subwords in a sentence")
    parser.add_argument("--fixed-length", type=int, default=0, help="all sentences of this length (documents)")
    add_sizes(parser)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="steps in a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--profile", default="", help="kinds whose kernels are printed, by time")
    parser.add_argument("--loader", default="", help="a kind whose steps are also timed with batches from the loader")
    parser.add_argument("--hold", action="store_true", help="once all are warm, wait for a line on standard input")
    parser.add_argument("--out", type=Path, help="folder for the JSON rows")
    parser.add_argument("--name", default="training")
    parser.add_argument("--draw", type=Path, help="draw the figure of this file's rows and stop")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    profiled = [*kinds, "marian"] if options.marian else kinds
    if options.loader and options.loader not in kinds:
        parser.error(f"--loader is {options.loader}; wanted one of --kinds, {options.kinds}")
    if unknown := [name for name in filter(None, options.profile.split(",")) if name not in profiled]:
        parser.error(f"--profile names {', '.join(unknown)}; wanted what is measured, {', '.join(profiled)}")
    return options


def sentence_pairs(options: argparse.Namespace) -> list[list[tuple[list[int], list[int]]]]:
    """Batches of random ids with the lengths of real text: log-normal with σ 0.6, target within a tenth of source."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for _ in range(options.batches):
        batch, used = [], 0
        while True:
            if options.fixed_length:
                source = target = options.fixed_length - 1
            else:
                draw = torch.randn(2, generator=generator)
                source = int((options.mean_length * torch.exp(0.6 * draw[0] - 0.18)).clamp(1, 200))
                target = int((source * (1 + 0.1 * draw[1])).clamp(1, 200))
            if used + target + 1 > options.tokens or (
                batch and sum(len(s) + 1 for s, _ in batch) + source + 1 > int(1.04 * options.tokens)
            ):
                break
            used += target + 1
            batch.append((ids(source, options, generator), ids(target, options, generator)))
        batches.append(batch)
    return batches


def ids(length: int, options: argparse.Namespace, generator: torch.Generator) -> list[int]:
    return torch.randint(4, options.vocabulary, (length,), generator=generator).tolist()


def rela_side(
    kind: str, pairs: list, options: argparse.Namespace, device: torch.device, stack: contextlib.ExitStack
) -> Side:
    """Our own training step, as the trainer runs it."""
    torch.manual_seed(1)
    longest = max(max(len(s), len(t)) for batch in pairs for s, t in batch) + 1
    model = Transformer(model_config(kind, options, max_length=longest + 1)).to(device).train()
    objective = Objective(model, 0.1, 1.0)
    if not options.eager:
        objective.compile(dynamic=False)
    on_gpu = device.type == "cuda"
    rate = torch.tensor(1e-4, device=device)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), fused=on_gpu, capturable=on_gpu)
    source_tokens, sentences = int(1.04 * options.tokens), max(map(len, pairs)) + 8
    shape: StaticShape | None = StaticShape(source_tokens, options.tokens, sentences, longest, longest)
    loader = None
    if kind == options.loader:
        corpus = prepared(pairs, options, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        loader = stack.enter_context(
            BatchStream(corpus, options.tokens, 1, static=True, pin=on_gpu, source_limit=source_tokens)
        )
        shape = loader.shape
    batches: list[Batch] = [pack(batch, shape).to(device) for batch in pairs]

    def take_step(batch: Batch, factor: torch.Tensor) -> torch.Tensor:
        with autocast(device):
            loss, nll = objective(*objective_inputs(batch))
        (loss * factor).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return torch.stack([loss.detach(), nll.detach()])

    graphed = GraphedStep(take_step, device) if on_gpu and not options.eager else None

    def train(batch: Batch) -> torch.Tensor:
        factor = 1.0 / batch.target_tokens
        if graphed is None:
            sums = take_step(batch.to(device), torch.tensor(factor, device=device))
        else:
            sums = graphed(batch, factor)
        return sums[0] * factor

    return Side(train, batches, [batch.target_tokens for batch in batches], loader)


def prepared(pairs: list, options: argparse.Namespace, folder: Path) -> PreparedCorpus:
    """The sentences of all batches as a corpus on disk, for the loader to read."""
    everything = [pair for batch in pairs for pair in batch]
    (folder / IDS).mkdir()
    writer = ShardWriter(folder / IDS, "train", 1, options.vocabulary)
    writer.add(everything, np.zeros(len(everything), np.int64), 0)
    return PreparedCorpus(folder, "train", writer.facts() | {"weights": [1.0]}, options.vocabulary)


def marian_side(pairs: list, options: argparse.Namespace, device: torch.device) -> Side:
    """Hugging Face Marian of the same sizes on padded batches of similar lengths, SDPA and torch.compile."""
    settings = {"dropout": 0.1, "attention_dropout": 0.1, "max_position_embeddings": 512, "use_cache": False}
    model = marian(options, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0, **settings).to(device).train()
    run = model if options.eager else torch.compile(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=device.type == "cuda")
    batches = [padded(group, device) for group in by_length(pairs, options.tokens)]

    def train(batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]) -> torch.Tensor:
        source, target, labels, _ = batch
        with autocast(device):
            logits = run(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target).logits
            flat = logits.float().view(-1, logits.size(-1))
            loss = torch.nn.functional.cross_entropy(flat, labels.view(-1), ignore_index=0, label_smoothing=0.1)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return Side(train, batches, [batch[3] for batch in batches])


def by_length(pairs: list, tokens: int) -> list[list[tuple[list[int], list[int]]]]:
    """The same sentences sorted into batches of similar length, as a padding toolkit has them, lengths rounded to 8."""
    everything = sorted((pair for batch in pairs for pair in batch), key=lambda pair: len(pair[1]))
    groups: list[list] = [[]]
    for pair in everything:
        width = -(-max([len(pair[1]) + 1, *(len(t) + 1 for _, t in groups[-1])]) // 8) * 8
        if groups[-1] and width * (len(groups[-1]) + 1) > tokens:
            groups.append([])
        groups[-1].append(pair)
    return groups


def padded(group: list, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    def table(rows: list[list[int]]) -> torch.Tensor:
        width = -(-max(map(len, rows)) // 8) * 8
        return torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)

    source, target = table([[*s, 2] for s, _ in group]), table([[0, *t] for _, t in group])
    labels = table([[*t, 2] for _, t in group])
    return source, target, labels, sum(len(t) + 1 for _, t in group)


def autocast(device: torch.device) -> contextlib.AbstractContextManager:
    return torch.autocast(device.type, torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()


def speed(side: Side, steps: int, device: torch.device) -> float:
    """Target tokens a second over at least so many steps: every batch as often as any other."""
    steps = -(-steps // len(side.tokens)) * len(side.tokens)
    synchronise(device)
    started = time.perf_counter()
    for i in range(steps):
        side.step(i)
    synchronise(device)
    return steps / len(side.tokens) * sum(side.tokens) / (time.perf_counter() - started)


def loading(side: Side, steps: int, device: torch.device) -> dict[str, float]:
    """Milliseconds a step on batches that lie on the device, on those of the loader, and of that the time waited."""
    assert side.loader is not None
    times = {}
    waited = 0.0
    for name in ("resident", "streamed"):
        synchronise(device)
        started = time.perf_counter()
        for i in range(steps):
            if name == "resident":
                side.step(i)
                continue
            asked = time.perf_counter()
            batch = next(side.loader)
            waited += time.perf_counter() - asked
            side.train(batch)
        synchronise(device)
        times[name] = round((time.perf_counter() - started) / steps * 1000, 3)
    return times | {"waited": round(waited / steps * 1000, 3)}


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def row_of(
    name: str,
    speeds: dict[str, list[float]],
    warm: dict[str, float | None],
    options: argparse.Namespace,
    device: torch.device,
) -> dict:
    first = next(iter(speeds))
    low, _, high = statistics.quantiles(speeds[name], n=4)
    median = statistics.median(speeds[name])
    return {
        "side": name,
        "target_tokens_per_second": round(median),
        "spread": round((high - low) / median, 4),
        f"ratio_to_{first}": rounded(median_ratio(speeds, name, first), 4),
        **warm,
        "turns": options.turns,
        "steps_a_turn": options.steps,
        "tokens": options.tokens,
        "mean_length": options.fixed_length or options.mean_length,
        **sizes_of(options),
        "compiled": not options.eager,
        **facts(device),
    }


def print_table(rows: list[dict]) -> None:
    for row in rows:
        memory = "" if row["peak_memory_gib"] is None else f"{row['peak_memory_gib']:6.1f} GiB"
        print(
            f"{row['side']:12s} {row['target_tokens_per_second']:>12,} target tokens/s ± {row['spread']:.0%}  "
            f"{ratio_of(row):5.2f}×  {memory}  loss {row['first_loss']:.2f} → {row['last_loss']:.2f}"
        )


def ratio_of(row: dict) -> float:
    """A side's speed against that of the first side."""
    return next(value for key, value in row.items() if key.startswith("ratio"))


def draw(rows: list[dict], path: Path) -> None:
    """Speed of each side, and beside its bar the ratio to the first."""
    from rela.plots.style import PALETTE, SMALL, TEXT, new_figure, save_figure

    rows = [row for row in rows if "target_tokens_per_second" in row]  # not the loader's
    axes = new_figure(height=0.6 + 0.28 * len(rows)).subplots()
    speeds = [row["target_tokens_per_second"] / 1000 for row in rows]
    bars = axes.barh([row["side"] for row in rows], speeds, color=PALETTE[0])
    axes.bar_label(bars, [f"{ratio_of(row):.2f}×" for row in rows], padding=3, fontsize=SMALL)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("thousand target tokens a second, training", fontsize=TEXT)
    axes.tick_params(labelsize=SMALL)
    save_figure(axes, path)


def profile(side: Side, device: torch.device) -> str:
    """Where one step's time goes: kernels by the milliseconds a step spends in them."""
    with torch.profiler.profile() as record:
        for i in range(PROFILED):
            side.step(i)
        synchronise(device)
    on_gpu = device.type == "cuda"
    wanted = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    times = [
        ((event.self_device_time_total if on_gpu else event.self_cpu_time_total) / PROFILED / 1000, event)
        for event in record.key_averages()
        if event.device_type == wanted and not event.key.startswith("Optimizer")
    ]
    lines = [f"{sum(time for time, _ in times):.2f} ms a step"]
    for time_, event in sorted(times, key=lambda pair: -pair[0])[:100]:
        lines.append(f"{time_:7.3f} ms  {event.count / PROFILED:6.1f} ×  {event.key[:110]}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
