"""The configuration of an experiment: schema.py says what each field means."""

from rela.config.conversion import from_dict, to_dict
from rela.config.schema import (
    Config,
    CorpusConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    NamedCorpusConfig,
    QueryKeyGains,
    TrainConfig,
)
from rela.config.yaml_files import config_text, load_config, parse_yaml, read_yaml, save_config

__all__ = [
    "Config",
    "CorpusConfig",
    "DataConfig",
    "DecodeConfig",
    "ModelConfig",
    "NamedCorpusConfig",
    "QueryKeyGains",
    "TrainConfig",
    "config_text",
    "from_dict",
    "load_config",
    "parse_yaml",
    "read_yaml",
    "save_config",
    "to_dict",
]
