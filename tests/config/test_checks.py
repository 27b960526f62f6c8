"""Configurations made in Python check themselves."""

from __future__ import annotations

import math

import pytest

from rela.config import (
    CorpusConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    NamedCorpusConfig,
    QueryKeyGains,
    TrainConfig,
)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ModelConfig(width=0), "width"),
        (lambda: ModelConfig(dropout=1.0), "dropout"),
        (lambda: ModelConfig(threshold="learnt"), "threshold"),
        (lambda: ModelConfig(threshold=math.nan), "threshold"),
        (lambda: ModelConfig(target_sparsity=1.5), "target_sparsity"),
        (lambda: ModelConfig(query_key_gain=0.0), "query_key_gain"),
        (lambda: QueryKeyGains(cross=math.nan), "cross"),
        (lambda: TrainConfig(steps=0), "steps"),
        (lambda: TrainConfig(steps=9, centring=10), "centring"),
        (lambda: TrainConfig(precision="fp8"), "precision"),
        (lambda: TrainConfig(precision="fp16", sharding="full"), "precision"),
        (lambda: TrainConfig(optimiser="adamw"), "weight_decay"),
        (lambda: TrainConfig(schedule="linear"), "schedule"),
        (lambda: TrainConfig(best_by="chrf"), "best_by"),
        (lambda: NamedCorpusConfig("valid", "a", "b"), "name"),
        (lambda: DataConfig(more_valid=(NamedCorpusConfig("news", "a", "b"),)), "more_valid"),
        (lambda: TrainConfig(epsilon=0.0), "epsilon"),
        (lambda: TrainConfig(beta2=1.0), "beta2"),
        (lambda: DecodeConfig(beam=0), "beam"),
        (lambda: DecodeConfig(temperature=1e39), "temperature"),
        (lambda: DecodeConfig(max_length_ratio=1e19), "max_length_ratio"),
        (lambda: DecodeConfig(length_penalty=500.0), "length_penalty"),
        (lambda: DecodeConfig(beam=99_999), "beam"),
        (lambda: DecodeConfig(temperature=0.0), "temperature"),
        (lambda: DecodeConfig(max_length_ratio=math.inf), "max_length_ratio"),
        (lambda: DataConfig(vocabulary_size=3), "vocabulary_size"),
        (lambda: DataConfig(on_bad_line="ignore"), "on_bad_line"),
        (lambda: CorpusConfig("a", "b", weight=0.0), "weight"),
    ],
)
def test_configs_made_in_python_check_themselves(make, field):
    with pytest.raises(ValueError, match=field):
        make()
