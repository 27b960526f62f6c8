"""A trained softmax translation model becomes a ReLA model: attention by attention first, then by its outputs.

    python examples/softmax_to_rela.py --out runs/to-rela                    # our Transformer, trained here first
    python examples/softmax_to_rela.py --out runs/to-rela --family marian    # Hugging Face's Marian
    python examples/softmax_to_rela.py --out runs/to-rela --model demo/softmax/model

The corpus is the embedded one. Written are table.md, curves.png and model/, for `rela` or for `from_pretrained`.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import rela
from rela.attention.distillation import AttentionDistillation
from rela.config import Config, DataConfig, ModelConfig
from rela.data.subwords import BOS, EOS, PAD, UNK, Subwords, train_subwords
from rela.device import pick_device
from rela.evaluation.scores import bleu
from rela.hugging_face.configuration import RelaConfig
from rela.hugging_face.model import RelaForConditionalGeneration
from rela.model.folder import load_folder, save_folder, unique_weights
from rela.toy import split

ATTENTIONS = ("encoder_attention", "decoder_attention", "cross_attention")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--family", choices=("rela", "marian"), default="rela")
    parser.add_argument("--model", type=Path, help="a trained softmax model folder of rela, instead of training one")
    parser.add_argument("--kind", default="rela-g")
    parser.add_argument("--teacher-steps", type=int, default=1500)
    parser.add_argument("--attention-steps", type=int, default=100, help="each attention alone; 0: none")
    parser.add_argument("--output-steps", type=int, default=400, help="the whole model")
    parser.add_argument("--labels", type=float, default=0.5, help="weight of the references against the teacher")
    parser.add_argument("--every", type=int, default=100, help="steps between measurements")
    parser.add_argument("--train", type=int, default=40_000, help="training sentences")
    parser.add_argument("--test", type=int, default=200, help="test sentences")
    parser.add_argument("--sentences", type=int, default=64, help="in a batch")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--device", default="auto", help="auto is the GPU where there is one")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    torch.manual_seed(1)
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(options)
    teacher = trained_teacher(options, corpus)
    student = exchanged(teacher, options.kind)
    rows = [measure("softmax", 0, teacher, corpus), measure("exchanged", 0, student, corpus)]
    distil_attentions(options, teacher, student, corpus, rows)
    distil_outputs(options, teacher, student, corpus, rows)
    write(options, rows, student, corpus)


class Corpus:
    """Endless batches of the embedded corpus, and its test sentences."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.sentences, self.device = options.sentences, pick_device(options.device)
        train, _, self.test = split(options.train, 1, options.test, seed=1)
        if options.model is not None:
            self.subwords = Subwords(load_folder(options.model)[2])
        else:
            self.subwords = train_subwords((text for p in train for text in (p.source, p.target)), options.vocabulary)
        self.train = itertools.cycle(train)

    def batches(self, steps: int) -> Iterator[dict[str, Tensor]]:
        for _ in range(steps):
            pairs = list(itertools.islice(self.train, self.sentences))
            sources, targets = (self.pad([getattr(p, side) for p in pairs]) for side in ("source", "target"))
            yield {
                "input_ids": sources,
                "attention_mask": (sources != PAD).long(),
                "labels": targets.masked_fill(targets == PAD, -100),
            }

    def pad(self, texts: list[str]) -> Tensor:
        rows = [torch.tensor([*self.subwords.encode(text), EOS]) for text in texts]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(self.device)


def trained_teacher(options: argparse.Namespace, corpus: Corpus) -> Any:
    """A softmax model: given, or trained here."""
    size = corpus.subwords.size
    if options.model is not None:
        model, config, _ = load_folder(options.model)
        return RelaForConditionalGeneration.from_rela(model, RelaConfig.from_rela(config)).to(corpus.device).eval()
    if options.family == "marian":
        from transformers import MarianConfig, MarianMTModel

        parts = {"layers": 2, "attention_heads": 4, "ffn_dim": 2 * options.width}
        shape = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in parts.items()}
        teacher: Any = MarianMTModel(
            MarianConfig(
                vocab_size=size,
                d_model=options.width,
                **shape,
                max_position_embeddings=256,
                dropout=0.0,
                pad_token_id=PAD,
                eos_token_id=EOS,
                forced_eos_token_id=EOS,
                decoder_start_token_id=BOS,
                scale_embedding=True,
                activation_function="relu",
                attn_implementation="eager",
            )
        )
    else:
        shape = {"width": options.width, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "max_length": 256}
        model = ModelConfig(
            size,
            **shape,
            feed_forward=2 * options.width,
            dropout=0.0,
            attention_dropout=0.0,
            **dict.fromkeys(ATTENTIONS, "softmax"),
        )
        config = Config(data=DataConfig(vocabulary_size=size), model=model)
        teacher = RelaForConditionalGeneration(RelaConfig.from_rela(config))
    teacher.to(corpus.device).train()
    steps = options.teacher_steps
    losses = training(
        teacher.parameters(), 2e-3, corpus.batches(steps), steps, lambda batch: teacher(**batch, use_cache=False).loss
    )
    print(f"teacher trained, last loss {[loss for _, loss in losses][-1]:.3f}")
    return teacher.eval()


def exchanged(teacher: Any, kind: str) -> Any:
    """A copy of the teacher with attention of another kind: its projections are kept, norms are new."""
    if not isinstance(teacher, RelaForConditionalGeneration):
        student = copy.deepcopy(teacher)
        print(rela.replace_attention(student, kind))
        return student
    config = teacher.config.to_rela()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, **dict.fromkeys(ATTENTIONS, kind)))
    student = RelaForConditionalGeneration(RelaConfig.from_rela(config))
    student.load_state_dict(teacher.state_dict(), strict=False)
    return student.to(teacher.device).eval()


def training(parameters: Any, rate: float, batches: Iterator[Any], steps: int, loss_of: Any) -> Iterator[tuple]:
    """Step and loss of each step of AdamW, the rate warmed up over a twentieth and then falling linearly to zero."""
    optimiser = torch.optim.AdamW(parameters, rate, betas=(0.9, 0.98), weight_decay=0.0)
    warmup = max(steps // 20, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, (steps - step) / max(steps - warmup, 1))
    )
    for step, batch in enumerate(batches, start=1):
        optimiser.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        optimiser.step()
        schedule.step()
        yield step, loss.item()


def distil_attentions(
    options: argparse.Namespace, teacher: Any, student: Any, corpus: Corpus, rows: list[dict]
) -> None:
    """First stage: each attention of the student learns to give what the teacher's gives for the same input."""
    with AttentionDistillation(teacher, student) as distillation:

        def loss_of(batch: dict[str, Tensor]) -> Tensor:
            with torch.no_grad():
                teacher(**batch, use_cache=False)
            return distillation.loss()

        steps = options.attention_steps
        for step, loss in training(distillation.parameters(), 2e-3, corpus.batches(steps), steps, loss_of):
            if step % options.every == 0 or step == steps:
                rows.append(measure("attention", step, student, corpus, loss))


def distil_outputs(options: Any, teacher: Any, student: Any, corpus: Corpus, rows: list[dict]) -> None:
    """Second stage: the whole student learns from the references and from the teacher's distributions."""

    def loss_of(batch: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            wanted = teacher(**batch, use_cache=False).logits
        output = student(**batch, use_cache=False)
        kept = batch["labels"] != -100
        distance = F.kl_div(
            output.logits[kept].log_softmax(-1), wanted[kept].log_softmax(-1), log_target=True, reduction="batchmean"
        )
        return options.labels * output.loss + (1 - options.labels) * distance

    steps = options.output_steps
    for step, loss in training(student.parameters(), 1e-3, corpus.batches(steps), steps, loss_of):
        if step % options.every == 0 or step == steps:
            rows.append(measure("output", options.attention_steps + step, student, corpus, loss))


@torch.no_grad()
def measure(stage: str, step: int, model: Any, corpus: Corpus, loss: float = float("nan")) -> dict[str, Any]:
    """BLEU of greedy translations, the seconds they take (of the processor, or of the GPU), and sparsity rates."""
    model.eval()
    sources = corpus.pad([pair.source for pair in corpus.test])
    targets = corpus.pad([pair.target for pair in corpus.test])
    batch = {"input_ids": sources, "attention_mask": (sources != PAD).long()}
    limits = {"num_beams": 1, "do_sample": False, "max_new_tokens": targets.size(1) + 10}
    clock = time.perf_counter if corpus.device.type == "cuda" else time.process_time
    start = clock()
    found = model.generate(**batch, **limits, suppress_tokens=[PAD, BOS, UNK]).tolist()
    seconds = clock() - start
    score = bleu([corpus.subwords.decode(ids) for ids in found], [pair.target for pair in corpus.test], force=True)
    labels = targets.masked_fill(targets == PAD, -100)
    weights = model(**batch, labels=labels, use_cache=False, output_attentions=True)
    real = {"source": sources != PAD, "target": targets != PAD}
    rates = {
        "encoder": zero_rate(weights.encoder_attentions, real["source"], real["source"], False),
        "decoder": zero_rate(weights.decoder_attentions, real["target"], real["target"], True),
        "cross": zero_rate(weights.cross_attentions, real["target"], real["source"], False),
    }
    row = {"stage": stage, "step": step, "loss": loss, "BLEU": score.value, **rates, "seconds": seconds}
    print("  ".join(f"{name} {value:.3f}" if isinstance(value, float) else f"{value}" for name, value in row.items()))
    return row


def zero_rate(layers: Any, queries: Tensor, keys: Tensor, causal: bool) -> float:
    """The share of weights that are exactly zero, of those that a query may give."""
    allowed = queries[:, :, None] & keys[:, None]
    if causal:
        allowed = allowed.tril()
    return float(
        torch.stack([(layer == 0)[allowed[:, None].expand_as(layer)].float().mean() for layer in layers]).mean()
    )


def write(options: argparse.Namespace, rows: list[dict], student: Any, corpus: Corpus) -> None:
    """The table, the figure and the model."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        lines.append("| " + " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(rows, options.out / "curves.png")
    if isinstance(student, RelaForConditionalGeneration):
        save_folder(
            options.out / "model", student.config.to_rela(), unique_weights(student.to_rela()), corpus.subwords.model
        )
    else:
        student.save_pretrained(options.out / "model")


def draw(rows: list[dict], path: Path) -> None:
    """BLEU and sparsity rates against steps; the teacher's BLEU as a line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    student = rows[1:]
    steps = [row["step"] for row in student]
    left.plot(steps, [row["BLEU"] for row in student], marker="o", label="ReLA")
    left.axhline(rows[0]["BLEU"], color="grey", linestyle="--", label="softmax teacher")
    left.set(xlabel="steps", ylabel="BLEU")
    for name in ("encoder", "decoder", "cross"):
        right.plot(steps, [row[name] for row in student], marker="o", label=name)
    right.set(xlabel="steps", ylabel="sparsity rate", ylim=(0, 1))
    for axes in (left, right):
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
