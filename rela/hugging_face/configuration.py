"""RelaConfig: the configuration of a rela model as `transformers` keeps it, in config.json."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from rela.config import Config, ModelConfig, from_dict, to_dict
from rela.data.subwords import BOS, EOS, PAD

THEIR_NAMES = {
    "vocabulary_size": "vocab_size",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "max_length": "max_position_embeddings",
}
"""Fields of ModelConfig that every model of `transformers` has, and their names there."""


class RelaConfig(PreTrainedConfig):
    """The fields of `rela.config.ModelConfig`, under the names of `transformers` where it has one."""

    model_type = "rela"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (as every class of theirs)
    attribute_map = {"num_hidden_layers": "encoder_layers"}  # noqa: RUF012

    vocab_size: int = 32000
    hidden_size: int = 512
    num_attention_heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    intermediate_size: int = 2048
    encoder_attention: str = "rela-g"
    decoder_attention: str = "rela-g"
    cross_attention: str = "rela-g"
    threshold: float | str = 0.0
    target_sparsity: float | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_first: bool = False
    query_key_gain: float | dict[str, float] = 1.0
    tied_embeddings: str = "all"
    max_position_embeddings: int = 1024
    experiment: dict[str, Any] | None = None
    """The sections data, train and decode of the model's config.yaml, so that it can be written again."""
    subwords_sha256: str | None = None
    """The hash of the subword model that the weights were trained with; older versions wrote none."""
    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int = PAD
    bos_token_id: int = BOS
    eos_token_id: int = EOS
    decoder_start_token_id: int = BOS

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.tie_word_embeddings = self.tied_embeddings != "none"
        _ = self.model_config  # which checks every field

    @property
    def model_config(self) -> ModelConfig:
        """The shape of the model as `rela.model` takes it."""
        fields = ModelConfig.__dataclass_fields__  # which has a default for each
        values = {name: getattr(self, THEIR_NAMES.get(name, name), fields[name].default) for name in fields}
        config: ModelConfig = from_dict(ModelConfig, values, "RelaConfig")
        return config

    def to_rela(self) -> Config:
        """The whole configuration, as a model folder of ours holds it."""
        config: Config = from_dict(
            Config, {**(self.experiment or {}), "model": to_dict(self.model_config)}, "RelaConfig"
        )
        return config

    @classmethod
    def from_rela(cls, config: Config) -> RelaConfig:
        """The same configuration for `transformers`."""
        sections = to_dict(config)
        shape = {THEIR_NAMES.get(name, name): value for name, value in sections.pop("model").items()}
        return cls(**shape, experiment=sections)
