"""The schema of an experiment: frozen dataclasses that check themselves, YAML in and out.

A YAML file has the sections `data`, `model`, `train` and `decode`; what it leaves out keeps the value
below, and a key that is not below is an error that names the known ones.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rela.files import write_text


@dataclass(frozen=True)
class CorpusConfig:
    """One parallel corpus: two files whose n-th lines translate each other."""

    source: str
    target: str
    weight: float = 1.0
    """How often each pair is seen in an epoch: 2 twice, 0.5 every other epoch's worth (a seeded half)."""

    def __post_init__(self) -> None:
        require(0 < self.weight < math.inf, "weight", self.weight, "a number above 0")


@dataclass(frozen=True)
class DataConfig:
    """From raw text to subword ids on disk."""

    source_language: str = "en"
    target_language: str = "de"
    root: str = "."
    """Relative corpus paths start here."""
    train: tuple[CorpusConfig, ...] = ()
    valid: CorpusConfig | None = None
    test: CorpusConfig | None = None
    directory: str = "data/prepared"
    """Where `rela prepare` writes the vocabulary and the id shards."""
    vocabulary_size: int = 32000
    """Pieces of the joint SentencePiece BPE model, special symbols included."""
    subwords: str = ""
    """An existing SentencePiece model of `vocabulary_size` pieces to use instead of learning one."""
    vocabulary_sample: int = 2_000_000
    """The subword model is learnt from at most so many lines, sampled over all training corpora."""
    character_coverage: float = 1.0
    max_tokens: int = 256
    """Pairs with a longer side are dropped and counted."""
    max_ratio: float = 0.0
    """Pairs whose subword lengths differ by more than this factor are dropped and counted; 0 keeps all."""
    on_bad_line: str = "skip"
    """An empty or undecodable line is skipped and counted ("skip") or ends the run with file and line ("raise")."""
    shard_pairs: int = 1_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.vocabulary_size >= 16, "vocabulary_size", self.vocabulary_size, "at least 16")
        require(self.vocabulary_sample > 0, "vocabulary_sample", self.vocabulary_sample, "at least 1")
        require(0 < self.character_coverage <= 1, "character_coverage", self.character_coverage, "in (0, 1]")
        require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        require(self.max_ratio == 0 or self.max_ratio >= 1, "max_ratio", self.max_ratio, "0 or at least 1")
        require(self.on_bad_line in ("skip", "raise"), "on_bad_line", self.on_bad_line, '"skip" or "raise"')
        require(self.shard_pairs >= 1, "shard_pairs", self.shard_pairs, "at least 1")


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer; the defaults are the paper's base setting."""

    vocabulary_size: int = 32000
    """Of a finished model; training takes the size that `data` was prepared with."""
    width: int = 512
    heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    feed_forward: int = 2048
    encoder_attention: str = "rela-g"
    """An attention kind: a preset such as "softmax" or "rela-g", or "weights+norm" such as "relu2+rms"."""
    decoder_attention: str = "rela-g"
    cross_attention: str = "rela-g"
    threshold: float | str = 0.0
    """θ, subtracted from the scores: a number, or "learned" for one learnable value a head; of the attentions whose
    weights know one (softmax, sparsemax and entmax do not)."""
    target_sparsity: float | None = None
    """A sparsity rate the learned thresholds are driven to by a penalty on the loss."""
    dropout: float = 0.1
    """On embeddings and residual branches."""
    attention_dropout: float = 0.1
    """On the attention weights."""
    norm_first: bool = False
    """Pre-norm instead of the paper's post-norm."""
    tied_embeddings: str = "all"
    """"all" shares source, target and output embeddings, "target" the last two, "none" nothing."""
    max_length: int = 1024
    """The longest sentence, in subwords, the positions are made for."""

    @property
    def attention_kinds(self) -> dict[str, str]:
        """The attention kind of each attention type: encoder, decoder and cross."""
        return {"encoder": self.encoder_attention, "decoder": self.decoder_attention, "cross": self.cross_attention}

    def __post_init__(self) -> None:
        for name in (
            "vocabulary_size",
            "width",
            "heads",
            "encoder_layers",
            "decoder_layers",
            "feed_forward",
            "max_length",
        ):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.width % self.heads == 0, "heads", self.heads, f"a divisor of width {self.width}")
        for name in ("dropout", "attention_dropout"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "in [0, 1)")
        number = isinstance(self.threshold, (int, float)) and math.isfinite(self.threshold)
        require(number or self.threshold == "learned", "threshold", self.threshold, 'a number or "learned"')
        require(self.target_sparsity is None or 0 <= self.target_sparsity <= 1, "target_sparsity",
                self.target_sparsity, "in [0, 1]")  # fmt: skip
        require(self.tied_embeddings in ("all", "target", "none"), "tied_embeddings", self.tied_embeddings,
                '"all", "target" or "none"')  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """How a model is learnt; the defaults are the paper's."""

    directory: str = "runs/model"
    """Where checkpoints, logs and the finished model folder go."""
    steps: int = 100_000
    tokens: int = 25_000
    """Target tokens in one optimiser step, over all processes and accumulated batches."""
    accumulate: int = 1
    """Batches a step is split into."""
    learning_rate: float = 1.0
    """Factor on the schedule width^-0.5 · min(step^-0.5, step · warmup^-1.5) of Vaswani et al. (2017)."""
    warmup: int = 4000
    cooldown: int = 0
    """Steps at the end over which the rate also falls linearly to zero; 0 is the paper's schedule."""
    centring: int = 0
    """Steps over which the mean key of a sentence comes back into the keys of encoder and cross attention; 0 is the
    paper's training. Softmax does not see it; a rectifier learns sooner where to look."""
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    """The largest norm of the gradient; 0 leaves it alone."""
    label_smoothing: float = 0.1
    sparsity_weight: float = 1.0
    """Factor on the penalty for missing `model.target_sparsity`."""
    precision: str = "auto"
    """"bf16" or "fp32"; "auto" is bf16 on a GPU that has it."""
    compile: str = "auto"
    """"on", "off", or "auto": compiled on a GPU."""
    device: str = "auto"
    seed: int = 1
    log_every: int = 50
    validate_every: int = 1000
    """Steps between validations by loss (0: never)."""
    bleu_every: int = 0
    """Steps between validations by greedy BLEU (0: never)."""
    save_every: int = 1000
    keep_last: int = 5
    average_last: int = 5
    """The finished model is the mean of so many last checkpoints."""
    patience: int = 0
    """Validations without a better loss before training stops (0: never stop early)."""
    tensorboard: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "accumulate", "warmup", "log_every", "save_every", "keep_last", "average_last"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in (
            "cooldown",
            "centring",
            "validate_every",
            "bleu_every",
            "patience",
            "clip_norm",
            "weight_decay",
            "sparsity_weight",
        ):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        for name in ("learning_rate", "epsilon"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "above 0")
        require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "beta1, beta2", (self.beta1, self.beta2), "in [0, 1)")
        require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "in [0, 1)")
        require(self.precision in ("auto", "bf16", "fp32"), "precision", self.precision, '"auto", "bf16" or "fp32"')
        require(self.compile in ("auto", "on", "off"), "compile", self.compile, '"auto", "on" or "off"')
        require(
            self.centring <= self.steps,
            "centring",
            self.centring,
            f"at most steps, {self.steps}: what is saved has plain keys",
        )
        require(self.average_last <= self.keep_last, "average_last", self.average_last,
                f"at most keep_last, {self.keep_last}")  # fmt: skip


@dataclass(frozen=True)
class DecodeConfig:
    """How translations are searched; the defaults are the paper's."""

    beam: int = 4
    length_penalty: float = 0.6
    """α of Wu et al. (2016), as Vaswani et al. use it: score / ((5 + length) / 6)^α."""
    max_length_ratio: float = 2.0
    """A translation has at most this many subwords for each of the source, plus `max_length_extra`."""
    max_length_extra: int = 50
    batch_tokens: int | None = None
    """Source tokens decoded together, padding included; without a number, 16,384 by graphs and 4,096 by the reference."""
    engine: str = "auto"
    """"graphs", a search that stays on the GPU; "reference", step by step in PyTorch; "auto": graphs where they serve."""
    precision: str = "auto"
    """"bf16", "fp32" or, on a CPU, "int8"; "auto" is bf16 for graphs on a GPU that has it, fp32 for the reference."""
    sampling: bool = False
    temperature: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.beam >= 1, "beam", self.beam, "at least 1")
        require(self.length_penalty >= 0, "length_penalty", self.length_penalty, "at least 0")
        require(0 < self.max_length_ratio < math.inf, "max_length_ratio", self.max_length_ratio, "above 0")
        require(self.max_length_extra >= 0, "max_length_extra", self.max_length_extra, "at least 0")
        require(self.batch_tokens is None or self.batch_tokens >= 1, "batch_tokens", self.batch_tokens, "at least 1")
        require(
            self.engine in ("auto", "reference", "graphs"), "engine", self.engine, '"auto", "reference" or "graphs"'
        )
        require(
            self.precision in ("auto", "bf16", "fp32", "int8"), "precision", self.precision,
            '"auto", "bf16", "fp32" or "int8"',
        )  # fmt: skip
        require(0 < self.temperature < math.inf, "temperature", self.temperature, "above 0")


@dataclass(frozen=True)
class Config:
    """One experiment, start to end."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


def require(condition: bool, name: str, came: object, wanted: str) -> None:
    """Raise a ValueError that names the field, what came and what was wanted."""
    if not condition:
        raise ValueError(f"{name} is {came!r}; wanted {wanted}")


def load_config(path: str | Path, overrides: typing.Sequence[str] = ()) -> Config:
    """Read an experiment from YAML, then apply overrides such as "train.steps=500"."""
    values = read_yaml(path)
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} holds a {type(values).__name__}; wanted a mapping with sections {', '.join(section_names())}"
        )
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise ValueError(f"override {override!r}; wanted key=value, such as train.steps=500")
        set_nested(values, key.split("."), parse_yaml(value, f"override {override!r}"))
    return from_dict(Config, values, str(path))


def read_yaml(path: str | Path) -> Any:
    """The values of a YAML file, or a ValueError that names it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not valid YAML: byte {error.start} is not UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The values of YAML text, of which only true and false are truth values: "off" and "no" (Norwegian) are text."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own table, less its booleans)
            first: [(tag, form) for tag, form in resolvers if not tag.endswith(":bool")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None


def save_config(config: Any, path: str | Path) -> None:
    """Write a configuration, whole or not at all, as YAML that `load_config` reads back as an equal value."""
    import yaml

    write_text(path, yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))


def to_dict(config: Any) -> dict[str, Any]:
    """Plain dicts, lists and numbers, as YAML and JSON take them."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    return plain(dataclasses.asdict(config))


def from_dict(cls: type, values: Any, where: str) -> Any:
    """Build a dataclass from plain values; `where` names the place in every error."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} is {values!r}; wanted a mapping with keys of {cls.__name__}")
    hints = typing.get_type_hints(cls)
    known = {item.name for item in dataclasses.fields(cls)}
    if unknown := sorted(str(key) for key in values.keys() - known):
        raise ValueError(
            f"{where}: {cls.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    missing = [item.name for item in dataclasses.fields(cls)
               if item.default is item.default_factory is dataclasses.MISSING and item.name not in values]  # fmt: skip
    if missing:
        raise ValueError(f"{where}: {cls.__name__} needs {', '.join(missing)}")
    built = {key: coerce(hints[key], value, f"{where}: {key}") for key, value in values.items()}
    try:
        return cls(**built)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def coerce(wanted: Any, value: Any, where: str) -> Any:
    """The value as the annotated type, or a ValueError; numbers widen, nothing else is guessed."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            if dataclasses.is_dataclass(option) and isinstance(value, dict):
                return coerce(option, value, where)  # its own error names the field that is wrong
        for option in arguments:
            try:
                return coerce(option, value, where)
            except ValueError:
                continue
        names = " or ".join(describe(option) for option in arguments)
        raise ValueError(f"{where} is {value!r}; wanted {names}")
    if dataclasses.is_dataclass(wanted):
        return from_dict(typing.cast(type, wanted), value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} is {value!r}; wanted a list")
        return tuple(coerce(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if wanted is float and isinstance(value, str):  # YAML reads 1e-9 as text
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{where} is {value!r}; wanted a number") from None
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is types.NoneType and value is None:
        return None
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(f"{where} is {value!r}; wanted {describe(wanted)}")
    return value


def describe(wanted: Any) -> str:
    """A type in words for an error message."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "nothing"}
    return words.get(wanted, getattr(wanted, "__name__", str(wanted)))


def set_nested(values: dict[str, Any], keys: list[str], value: Any) -> None:
    """values[a][b] = value, making the mappings on the way."""
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ValueError(f"override of {'.'.join(keys)}: {key} is {values!r}, not a section")
    values[keys[-1]] = value


def section_names() -> list[str]:
    return [item.name for item in dataclasses.fields(Config)]
