"""The training loss of the fast path (kernels, compiled, recorded) and of the equations in plain PyTorch.

    python -m benchmarks.loss_curves configs/europarl-en-de.yaml --set data.root=CORPORA --steps 200 \\
        --out results/training/loss

Data, seed and precision are the same. There is no dropout, because its masks would differ. The fast path trains twice:
gradients are summed in no fixed order, so two runs drift apart by rounding alone. This difference is the noise with
which the difference from the equations is compared. The prepared corpus must exist (`rela prepare`). Runs share the
device, so the speed is not measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import facts
from rela.config import Config, load_config
from rela.training.trainer import train

RUNS = ("equations", "fast path", "fast path again")


def main() -> None:
    options = arguments()
    if options.draw:
        draw(json.loads(options.draw.read_text(encoding="utf-8")), options.draw.with_suffix(""))
        return
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(name, plan(options, name, seed, Path(folder))) for seed in options.seeds for name in RUNS]
        # a process for each run: one that has trained by the equations has no Triton any more
        workers = ProcessPoolExecutor(options.at_once, multiprocessing.get_context("spawn"), max_tasks_per_child=1)
        with workers:
            curves = list(workers.map(losses, *zip(*jobs, strict=True)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs = [
        {"run": name, "seed": config.train.seed, "loss": curve}
        for (name, config), curve in zip(jobs, curves, strict=True)
    ]
    result = {**facts(device), "log_every": options.every, "runs": runs}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_name(f"{options.out.name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(result, options.out)
    for seed in options.seeds:
        for name, drift in drifts(result, seed).items():
            mean, largest = sum(drift) / len(drift), max(map(abs, drift))
            print(f"seed {seed}, {name}: {mean:+.2f} % from the equations in the mean, {largest:.2f} % at most")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", help="config of `rela train`; its corpus must be prepared")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE", help="as in `rela train`"
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, help="number of steps averaged for one point of a curve")
    parser.add_argument("--seeds", type=numbers, default=[1], help="1,2,3")
    parser.add_argument("--at-once", type=int, default=3, help="runs that share the device")
    parser.add_argument("--out", type=Path, default=Path("loss"), help="OUT.json, OUT.png and OUT.svg")
    parser.add_argument("--draw", type=Path, help="draw the figure of a result measured before, and do nothing else")
    options = parser.parse_args()
    if not options.draw and not options.config:
        parser.error("a configuration is wanted, or --draw")
    if min(options.steps, options.every, options.at_once) < 1 or options.steps % options.every:
        parser.error("--steps is wanted as a multiple of --every, and these and --at-once above 0")
    return options


def numbers(text: str) -> list[int]:
    """Different whole numbers, in the order given."""
    return list(dict.fromkeys(int(word) for word in text.split(",")))


def plan(options: argparse.Namespace, name: str, seed: int, folder: Path) -> Config:
    """The user's configuration without dropout, for `steps` steps by one path."""
    config = load_config(options.config, options.overrides)
    settings = replace(
        config.train,
        directory=str(folder / f"{name}-{seed}"),
        steps=options.steps,
        seed=seed,
        log_every=options.every,
        cooldown=0,
        centring=min(config.train.centring, options.steps),
        validate_every=0,
        patience=0,
        bleu_every=0,
        save_every=options.steps,
        average_last=1,
        tensorboard=False,
        compile="off" if name == "equations" else "on",
    )
    return replace(config, model=replace(config.model, dropout=0.0, attention_dropout=0.0), train=settings)


def losses(name: str, config: Config) -> list[float]:
    """Train, and give the losses of the log; the equations as if no Triton were there."""
    from rela import device
    from rela.plots.curves import read_log

    device.TRITON_IS_INSTALLED = device.TRITON_IS_INSTALLED and name != "equations"
    train(config, quiet=True)
    print(f"{name}, seed {config.train.seed}: done", flush=True)
    return [round(row["loss"], 5) for row in read_log(config.train.directory) if row["event"] == "train"]


def drifts(result: dict[str, Any], seed: int) -> dict[str, list[float]]:
    """By how many per cent the losses of each other run of a seed are above those of the equations."""
    curves = {run["run"]: run["loss"] for run in result["runs"] if run["seed"] == seed}
    right = curves.pop("equations")
    return {
        name: [100.0 * (one / other - 1.0) for one, other in zip(curve, right, strict=True)]
        for name, curve in curves.items()
    }


def draw(result: dict[str, Any], path: Path) -> None:
    """The curves, which lie on each other, and under them how far apart they are."""
    from rela.plots.style import PALETTE, SMALL, TEXT, new_figure, save_figure

    above, below = new_figure(height=3.4).subplots(2, 1, sharex=True)
    seeds = sorted({run["seed"] for run in result["runs"]})
    for run in result["runs"]:
        place = RUNS.index(run["run"])
        steps = [result["log_every"] * (i + 1) for i in range(len(run["loss"]))]
        label = run["run"] if run["seed"] == seeds[0] else None
        above.plot(steps, run["loss"], color=PALETTE[place], lw=1.0, label=label)
        if run["run"] != "equations":
            below.plot(steps, drifts(result, run["seed"])[run["run"]], color=PALETTE[place], lw=1.0)
    below.axhline(0.0, color=PALETTE[0], lw=1.0)
    above.set_ylabel("loss", fontsize=TEXT)
    below.set_ylabel("% from the equations", fontsize=TEXT)
    below.set_xlabel("step", fontsize=TEXT)
    above.legend(fontsize=SMALL, frameon=False)
    for axes in (above, below):
        axes.tick_params(labelsize=SMALL)
    save_figure(above, path)


if __name__ == "__main__":
    main()
