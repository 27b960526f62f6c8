"""The schema of an experiment: frozen dataclasses that check themselves.

A YAML file has the sections `data`, `model`, `train` and `decode`; what it leaves out keeps the value
below, and a key that is not below is an error that names the known ones.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace

from rela.config.checks import (
    require,
    require_at_least,
    require_at_most,
    require_between,
    require_choice,
    require_fraction,
    require_positive,
)

LARGEST_SIZE = 1 << 24
"""Of a vocabulary and of a layer: far more than fits any memory, and little enough to compute with."""


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
class NamedCorpusConfig:
    """A further validation set: two files, and the name under which it is logged."""

    name: str
    source: str
    target: str

    def __post_init__(self) -> None:
        named = re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", self.name) and self.name not in ("train", "valid", "test")
        require(bool(named), "name", self.name, "a letter, then letters, digits, - and _; not train, valid or test")


@dataclass(frozen=True)
class DataConfig:
    """From raw text to subword ids on disk."""

    source_language: str = "en"
    target_language: str = "de"
    root: str = "."
    """Relative paths of the text and of `subwords` start here."""
    train: tuple[CorpusConfig, ...] = ()
    valid: CorpusConfig | None = None
    more_valid: tuple[NamedCorpusConfig, ...] = ()
    """Further validation sets, each logged under its name; `train.best_on` says which one chooses the best model."""
    test: CorpusConfig | None = None
    directory: str = "data/prepared"
    """Where `rela prepare` writes the vocabulary and the id shards."""
    vocabulary_size: int = 32000
    """Pieces of the SentencePiece model, special symbols included."""
    vocabularies: str = "joint"
    """"joint" for both languages, or "separate": `vocabulary_size` pieces for each; then `model.tied_embeddings` is
    "target" or "none"."""
    subword_model: str = "bpe"
    """What SentencePiece learns: "bpe" or "unigram"."""
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
        require_at_least(self, 16, "vocabulary_size")
        require_at_most(self, LARGEST_SIZE, "vocabulary_size")
        require_at_least(self, 1, "vocabulary_sample")
        require(0 < self.character_coverage <= 1, "character_coverage", self.character_coverage, "in (0, 1]")
        require_at_least(self, 1, "max_tokens")
        require(self.max_ratio == 0 or self.max_ratio >= 1, "max_ratio", self.max_ratio, "0 or at least 1")
        require_choice(self, "on_bad_line", "skip", "raise")
        require_choice(self, "subword_model", "bpe", "unigram")
        require_choice(self, "vocabularies", "joint", "separate")
        learnt = self.subword_model == "bpe" or not self.subwords
        require(learnt, "subword_model", self.subword_model, "bpe, its default, with subwords: none is learnt")
        require_at_least(self, 1, "shard_pairs")
        names = [corpus.name for corpus in self.more_valid]
        require(len(set(names)) == len(names), "more_valid", names, "names that differ")
        require(not names or self.valid is not None, "more_valid", names, "valid too: these come beside it")


@dataclass(frozen=True)
class QueryKeyGains:
    """Factors on the initial W_q and W_k, by attention type."""

    encoder: float = 1.0
    decoder: float = 1.0
    cross: float = 1.0

    def __post_init__(self) -> None:
        for name, gain in vars(self).items():
            require(0 < gain < math.inf, name, gain, "a number above 0")


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
    query_key_gain: float | QueryKeyGains = 1.0
    """Factor on the initial W_q and W_k: a number, or one by attention type, {encoder: 0.1, cross: 0.1}, the others 1.
    Where an output norm cancels their scale, as in `rela-g`, a smaller one changes nothing but how fast they turn in
    training."""
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

    @property
    def query_key_gains(self) -> QueryKeyGains:
        """The factor on the initial W_q and W_k of each attention type."""
        gain = self.query_key_gain
        return gain if isinstance(gain, QueryKeyGains) else QueryKeyGains(gain, gain, gain)

    def __post_init__(self) -> None:
        require_at_least(self, 1, "vocabulary_size", "width", "heads", "encoder_layers", "decoder_layers")
        require_at_least(self, 1, "feed_forward", "max_length")
        require_at_most(self, 1000, "encoder_layers", "decoder_layers")
        require_at_most(self, 1 << 20, "max_length")
        require_at_most(self, LARGEST_SIZE, "vocabulary_size", "width", "feed_forward")
        require(self.width % self.heads == 0, "heads", self.heads, f"a divisor of width {self.width}")
        require_fraction(self, "dropout", "attention_dropout")
        if not isinstance(self.query_key_gain, QueryKeyGains):
            require(0 < self.query_key_gain < math.inf, "query_key_gain", self.query_key_gain, "a number above 0")
        number = isinstance(self.threshold, (int, float)) and math.isfinite(self.threshold)
        require(number or self.threshold == "learned", "threshold", self.threshold, 'a number or "learned"')
        sparsity = self.target_sparsity
        require(sparsity is None or 0 <= sparsity <= 1, "target_sparsity", sparsity, "in [0, 1]")
        require_choice(self, "tied_embeddings", "all", "target", "none")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is learnt; the defaults are the paper's."""

    directory: str = "runs/model"
    """Where checkpoints, logs and the finished model folder go."""
    from_: str = ""
    """`train.from`: a model folder, checkpoint or run whose weights training begins with; empty begins at random."""
    steps: int = 100_000
    tokens: int = 25_000
    """Target tokens in one optimiser step, over all processes and accumulated batches."""
    accumulate: int = 1
    """Batches a step is split into."""
    learning_rate: float = 1.0
    """Factor on the schedule width^-0.5 · min(step^-0.5, step · warmup^-1.5) of Vaswani et al. (2017)."""
    schedule: str = "inverse-sqrt"
    """"inverse-sqrt" is that of Vaswani et al.; "cosine" has the same warm-up, then half a cosine down to zero at
    `steps`."""
    warmup: int = 4000
    cooldown: int = 0
    """Steps at the end over which the rate also falls linearly to zero; 0 is the paper's schedule."""
    centring: int = 0
    """Steps over which the mean key of a sentence comes back into the keys of encoder and cross attention; 0 is the
    paper's training. Softmax does not see it; a rectifier learns sooner where to look."""
    optimiser: str = "adam"
    """"adam", whose weight decay is a part of the gradient, or "adamw", whose decay is not and leaves out what is no
    matrix: biases, norms, thresholds."""
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    """The largest norm of the gradient; 0 leaves it alone."""
    label_smoothing: float = 0.1
    subword_sampling: float = 0.0
    """Above 0, training text is cut into other subwords in each epoch: the probability with which BPE-dropout leaves
    out a merge (0.1 is usual), or α of sampling from a unigram model (0.2; smaller is more varied)."""
    sparsity_weight: float = 1.0
    """Factor on the penalty for missing `model.target_sparsity`."""
    precision: str = "auto"
    """"bf16", "fp16" (with a loss scale that adapts) or "fp32"; "auto" is bf16 on a GPU that has it."""
    compile: str = "auto"
    """"on", "off", or "auto": compiled on a GPU."""
    device: str = "auto"
    sharding: str = "none"
    """"full" spreads parameters, gradients and optimiser over the processes (FSDP2), for a model that does not fit one
    GPU; "none" gives each process all of them."""
    seed: int = 1
    log_every: int = 50
    validate_every: int = 1000
    """Steps between validations by loss (0: never)."""
    bleu_every: int = 0
    """Steps between validations by greedy BLEU (0: never)."""
    best_by: str = "loss"
    """What chooses the best model and what `patience` counts: validations by "loss" or by "bleu"."""
    best_on: str = "valid"
    """The validation set that does: "valid", or a name of `data.more_valid`."""
    save_every: int = 1000
    keep_last: int = 5
    """Checkpoints to keep; the newest two always stay, so that a run can go on if the newest is damaged."""
    average_last: int = 5
    """The finished model is the mean of so many last checkpoints."""
    patience: int = 0
    """Validations without a better loss, or BLEU by `best_by`, before training stops (0: never stop early)."""
    align: bool = True
    """`rela train` ends by choosing, on the validation text, the heads that word links are read from."""
    tensorboard: bool = True

    def __post_init__(self) -> None:
        require_at_least(self, 1, "steps", "tokens", "accumulate", "warmup", "log_every", "save_every")
        require_at_least(self, 1, "keep_last", "average_last")
        require_at_least(self, 0, "cooldown", "centring", "validate_every", "bleu_every", "patience")
        require_at_least(self, 0, "clip_norm", "weight_decay", "sparsity_weight")
        require(math.isfinite(self.weight_decay), "weight_decay", self.weight_decay, "a finite number")
        require(math.isfinite(self.sparsity_weight), "sparsity_weight", self.sparsity_weight, "a finite number")
        require_positive(self, "learning_rate", "epsilon")
        require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "beta1, beta2", (self.beta1, self.beta2), "in [0, 1)")
        require_fraction(self, "label_smoothing", "subword_sampling")
        require_choice(self, "precision", "auto", "bf16", "fp16", "fp32")
        require_choice(self, "schedule", "inverse-sqrt", "cosine")
        require_choice(self, "optimiser", "adam", "adamw")
        require_choice(self, "best_by", "loss", "bleu")
        decays = self.optimiser == "adam" or self.weight_decay > 0
        require(decays, "weight_decay", self.weight_decay, 'above 0 with optimiser "adamw", which without is adam')
        require_choice(self, "compile", "auto", "on", "off")
        require_choice(self, "sharding", "none", "full")
        scaled = self.sharding == "none" or self.precision != "fp16"
        require(scaled, "precision", self.precision, 'auto, bf16 or fp32 with sharding "full"')
        whole = self.sharding == "none" or self.compile != "on"
        require(whole, "compile", self.compile, 'auto or off with sharding "full", which is not compiled')
        limit = f"at most steps, {self.steps}: what is saved has plain keys"
        require(self.centring <= self.steps, "centring", self.centring, limit)
        limit = f"at most keep_last, {self.keep_last}"
        require(self.average_last <= self.keep_last, "average_last", self.average_last, limit)


MAX_BEAM = 1024
"""Hypotheses of a sentence; each holds keys and values of its own."""
SAMPLING_OPTIONS = ("temperature", "seed", "top_k", "top_p")
"""Fields of DecodeConfig that only sampling reads."""


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
    """Source tokens decoded together, padding included; None is 16,384 for graphs and 4,096 for the reference."""
    engine: str = "auto"
    """"graphs" (search that stays on the GPU), "reference" (step by step in PyTorch), or "auto": graphs if possible."""
    precision: str = "auto"
    """"bf16", "fp32" or, on a CPU, "int8"; "auto" is bf16 for graphs on a GPU that has it, fp32 for the reference."""
    sampling: bool = False
    temperature: float = 1.0
    seed: int = 1
    top_k: int = 0
    """Sampling draws from this many tokens, the most probable; 0 is all."""
    top_p: float = 1.0
    """Sampling draws from the fewest most probable tokens that hold this share of the probability."""
    min_length: int = 0
    """A translation has at least this many subwords, whatever the longest length says."""
    no_repeat_ngram: int = 0
    """No so many subwords come twice in one translation; 0 allows all repetition."""

    def __post_init__(self) -> None:
        require_at_least(self, 0, "top_k", "min_length", "no_repeat_ngram")
        require(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "above 0 and at most 1")
        require_between(self, 1, MAX_BEAM, "beam")
        require_between(self, 0, 10, "length_penalty")
        require_positive(self, "max_length_ratio")
        require_between(self, 0, 1_000_000, "max_length_ratio", "max_length_extra")
        require(self.batch_tokens is None or self.batch_tokens >= 1, "batch_tokens", self.batch_tokens, "at least 1")
        require_choice(self, "engine", "auto", "reference", "graphs")
        require_choice(self, "precision", "auto", "bf16", "fp32", "int8")
        require_between(self, 0.001, 1000, "temperature")


@dataclass(frozen=True)
class Config:
    """One experiment, start to end."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def for_training(self) -> Config:
        """These settings as training uses them: the model has the vocabulary of the data."""
        return replace(self, model=replace(self.model, vocabulary_size=self.data.vocabulary_size))
