"""COMET: a trained measure of translations that also reads the source (Rei et al., 2020). Needs an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rela.evaluation.scores import Score, check_same_length

MODEL = "Unbabel/wmt22-comet-da"


def comet(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], model: str = MODEL, gpus: int = 0
) -> Score:
    """The mean COMET score times 100; `model` is a name to download or a checkpoint file."""
    check_same_length(sources, references)
    check_same_length(hypotheses, references)
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError:
        raise ImportError("COMET needs its package: pip install 'rela-attention[comet]'", name="comet") from None
    scorer = load_from_checkpoint(model if Path(model).is_file() else download_model(model))
    keys = ("src", "mt", "ref")
    rows = [dict(zip(keys, row, strict=True)) for row in zip(sources, hypotheses, references, strict=True)]
    result = scorer.predict(rows, batch_size=16, gpus=gpus, progress_bar=False)
    return Score("COMET", 100 * float(result.system_score), f"model:{model}")
