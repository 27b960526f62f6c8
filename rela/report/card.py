"""A model card: the README.md of a model folder, for the people who get the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rela.analysis.accumulator import Accumulator, AttentionSummary
from rela.analysis.capture import capture
from rela.analysis.record import TYPES
from rela.config import Config
from rela.decoding.translate import Translator
from rela.evaluation.scores import Score, bleu, chrf

CARD = "README.md"
LIMITS = (
    "The model translates each sentence on its own and does not see the sentences around it.",
    "It was trained on the text named above. Check its translations of other text, of names and of numbers.",
    "A character that is not in its vocabulary is lost. A sentence longer than its positions is cut.",
    "Attention weights show which words the model looked at, not why it wrote a word.",
)


@dataclass(frozen=True)
class Measured:
    """What a model does on a test text."""

    text: str
    """The names of the files."""
    pairs: int
    scores: Sequence[Score]
    attention: dict[str, AttentionSummary]
    """By type: encoder, decoder, cross."""


def measure(translator: Translator, pairs: Sequence[tuple[str, str]], text: str) -> Measured:
    """Scores and attention of a model on sentence pairs; `text` names them."""
    if not pairs:
        raise ValueError(f"{text} has no sentence pairs; wanted at least one")
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    translations = translator.translate(sources)
    sums = {type: Accumulator() for type in TYPES}
    for records in capture(translator, pairs):
        for type in TYPES:
            sums[type].add(records[type])
    scores = [bleu(translations, references), chrf(translations, references)]
    return Measured(text, len(pairs), scores, {type: found.summary() for type, found in sums.items()})


def model_card(translator: Translator, name: str, measured: Measured | None = None, notes: str = "") -> str:
    """The card of a model as Markdown, with the header that model hubs read; `notes` are put before the limits."""
    config = translator.config
    limits = "## Limits\n\n" + "\n".join(f"- {line}" for line in LIMITS)
    parts = [header(config), f"# {name}", description(translator), use(name), data(config), settings(config)]
    return "\n\n".join(filter(None, [*parts, results(measured), notes.strip(), limits])) + "\n"


def header(config: Config) -> str:
    """The YAML block that Hugging Face reads."""
    languages = config.data.source_language, config.data.target_language
    lines = ["library_name: rela-attention", "pipeline_tag: translation", "tags: [translation, sparse-attention, rela]"]
    # quoted: YAML reads a bare no, Norwegian, as false
    return "\n".join(["---", "language: [" + ", ".join(f'"{word}"' for word in languages) + "]", *lines, "---"])


def description(translator: Translator) -> str:
    """One paragraph: languages, size, attention."""
    shape = translator.config.model
    kinds = sorted(set(shape.attention_kinds.values()))
    attention = kinds[0] if len(kinds) == 1 else ", ".join(f"{t} {k}" for t, k in shape.attention_kinds.items())
    count = sum(translator.model.parameter_counts().values())
    return (
        f"A Transformer that translates {translator.config.data.source_language} to "
        f"{translator.config.data.target_language}: {shape.encoder_layers}+{shape.decoder_layers} layers, width "
        f"{shape.width}, {shape.heads} heads, {count:,} parameters,\nattention {attention}. Trained with "
        "`rela` (rectified linear attention,\n[arXiv 2104.07012](https://arxiv.org/abs/2104.07012))."
    )


def use(name: str) -> str:
    """How to load and call the model."""
    code = f'import rela\n\nmodel = rela.load("{name}")\nprint(model.translate(["…"]))'
    return (
        f"## Use\n\n```python\n{code}\n```\n\n"
        f"For Hugging Face, convert the model with `rela convert {name} --to hf --out FOLDER`, and load it with\n"
        "`AutoModelForSeq2SeqLM.from_pretrained` after `import rela.hugging_face.auto`."
    )


def data(config: Config) -> str:
    """The training text and the vocabulary."""
    files = [f"- {short(corpus.source)}, {short(corpus.target)}" for corpus in config.data.train]
    listed = "\n".join(files) or "- not recorded"
    return (
        f"## Data\n\nTraining text:\n\n{listed}\n\n{vocabulary(config)}; pairs of more than "
        f"{config.data.max_tokens} subwords were left out."
    )


def vocabulary(config: Config) -> str:
    """How many subwords there are, of which model, for which languages."""
    learnt = {"bpe": " BPE", "unigram": " unigram"}[config.data.subword_model] if not config.data.subwords else ""
    if config.data.vocabularies == "separate":
        return f"A SentencePiece{learnt} vocabulary of {config.model.vocabulary_size:,} pieces for each language"
    return f"A joint SentencePiece{learnt} vocabulary of {config.model.vocabulary_size:,} pieces"


def short(path: str) -> str:
    """The last folder and the name of a file: enough to recognise a corpus, without a machine's folders."""
    return "/".join(Path(path).parts[-2:])


def settings(config: Config) -> str:
    """A table of what the model was trained and decodes with."""
    train, shape = config.train, config.model
    rows = {
        "steps": f"{train.steps:,}",
        "target tokens per step": f"{train.tokens:,}",
        "warmup": f"{train.warmup:,}",
        "dropout, attention dropout": f"{shape.dropout}, {shape.attention_dropout}",
        "label smoothing": str(train.label_smoothing),
        "threshold": str(shape.threshold),
        "target sparsity": "none" if shape.target_sparsity is None else str(shape.target_sparsity),
        "checkpoints averaged": str(train.average_last),
        "beam, length penalty": f"{config.decode.beam}, {config.decode.length_penalty}",
        "longest sentence, subwords": str(shape.max_length),
    }
    return "## Settings\n\n| | |\n|---|---|\n" + "\n".join(f"| {key} | {value} |" for key, value in rows.items())


def results(measured: Measured | None) -> str:
    """Scores and rates of zeros on a test text, or that there are none."""
    if measured is None:
        return "## Scores and sparsity\n\nNot measured: give `rela card` a test text."
    scores = [f"| {score.name} | {score.value:.1f} | `{score.signature}` |" for score in measured.scores]
    rates = [
        f"| {type} | {summary.sparsity.mean():.2f} | {summary.null_rate.mean():.2f} |"
        for type, summary in measured.attention.items()
    ]
    lines = [
        f"## Scores and sparsity\n\nOn {measured.text}, {measured.pairs:,} pairs.\n",
        *("| | | signature |", "|---|---|---|", *scores),
        "\nSparsity rate: the share of weights that are exactly zero. Null rate: the share of queries whose\n"
        "weights are all zero. Both are means over heads.\n",
        *("| attention | sparsity rate | null rate |", "|---|---|---|", *rates),
    ]
    return "\n".join(lines)
