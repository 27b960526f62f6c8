"""The smallest task there is, learned through the command line: say the digits again.

A campaign: that these commands train a model which translates, test_embedded_corpus.py shows in every run.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

CONFIG = """
data: {root: ., train: [{source: train.src, target: train.tgt}], directory: ids, vocabulary_size: 25}
model: {width: 32, heads: 2, encoder_layers: 1, decoder_layers: 1, feed_forward: 64, dropout: 0.0,
        attention_dropout: 0.0, max_length: 32, norm_first: true, encoder_attention: KIND, decoder_attention: KIND,
        cross_attention: KIND}
train: {directory: run, steps: 500, tokens: 400, warmup: 80, cooldown: 200, learning_rate: 2.0, log_every: 100,
        save_every: 500, keep_last: 1, average_last: 1, tensorboard: false, device: cpu}
"""


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["rela-g"])
def test_digits_are_copied(tmp_path: Path, kind: str, call, monkeypatch):
    generator = random.Random(1)
    for name, count in (("train", 3000), ("test", 100)):
        lines = [" ".join(generator.choices("0123456789", k=generator.randint(2, 8))) for _ in range(count)]
        for side in ("src", "tgt"):
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "copy.yaml").write_text(CONFIG.replace("KIND", kind), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for command in ("prepare copy.yaml", "train copy.yaml", "translate run/model test.src --out output.tgt"):
        code, _, errors = call(*command.split())
        assert code == 0, errors
    wanted, found = ((tmp_path / name).read_text(encoding="utf-8").splitlines() for name in ("test.tgt", "output.tgt"))
    exact = sum(one == two for one, two in zip(wanted, found, strict=True))
    assert exact >= 80, f"{exact} of 100 sequences were copied exactly"
