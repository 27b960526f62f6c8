"""float16 with a scale of the loss: what it computes, what an overflow does, and that it resumes exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from rela.config import TrainConfig
from rela.training.optimiser import apply_gradients, make_optimiser, set_rate
from rela.training.precision import Precision
from rela.training.trainer import train
from tests.training.training_files import events, final_bytes, with_train

CPU = torch.device("cpu")


def test_auto_is_fp32_on_a_cpu():
    assert [(Precision(name, CPU).name, Precision(name, CPU).type) for name in ("auto", "fp32", "bf16", "fp16")] == [
        ("fp32", None),
        ("fp32", None),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
    ]


def test_a_scaled_step_is_the_plain_one_and_an_overflow_is_left_out():
    plain, scaled = nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)
    scaled.load_state_dict(plain.state_dict())
    precision = Precision("fp16", CPU)
    norm = torch.zeros(())
    for model, scaler in ((plain, None), (scaled, precision.scaler)):
        optimiser = make_optimiser(model, TrainConfig(), CPU)
        set_rate(optimiser, 0.01)
        loss = model(torch.tensor([[1.0, -2.0, 2.0]])).sum()
        (loss if scaler is None else precision.scaled(loss)).backward()
        apply_gradients(optimiser, model, 0.0, norm, scaler)
        assert_close(norm, torch.tensor(3.0))
    assert torch.equal(scaled.weight, plain.weight)  # the scale is a power of two: nothing is rounded
    before = precision.scale
    precision.scaled(scaled(torch.tensor([[1e38, 0.0, 0.0]])).sum()).backward()
    apply_gradients(optimiser, scaled, 0.0, norm, precision.scaler)
    assert torch.equal(scaled.weight, plain.weight)
    assert before is not None
    assert (precision.scale, norm.isfinite().item()) == (before / 2, False)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_in_fp16_is_the_run_that_never_stopped(make_config, stop):
    """The first steps overflow, so that the scale has changed and the optimiser may not have stepped at all."""
    options = {"precision": "fp16", "steps": 5, "save_every": 1, "average_last": 1, "clip_norm": 1.0}
    straight, parts = make_config("straight", **options), make_config("parts", **options)
    train(straight, quiet=True)
    train(with_train(parts, steps=stop), quiet=True)
    train(parts, quiet=True)
    assert final_bytes(parts) == final_bytes(straight)
    scales = [row["loss_scale"] for row in events(parts)]
    assert scales == [row["loss_scale"] for row in events(straight)]
    plain = make_config("plain", **{**options, "precision": "fp32"})
    train(plain, quiet=True)
    (half, whole) = (events(config)[0]["nll"] for config in (straight, plain))
    assert half == pytest.approx(whole, rel=1e-2)
    assert half != whole
