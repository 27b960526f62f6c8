"""FSDP2 on two processes: the losses and the model of one process, and checkpoints that either can go on from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from rela.config import Config
from rela.decoding.translate import Translator
from rela.model.folder import load_weights
from rela.training.checkpoint import Checkpoints
from rela.training.trainer import train
from tests.forking import forked_group
from tests.training.training_files import checkpoint, events, with_train

CLOSE = 1e-4
"""Of losses and weights after a dozen steps: the same numbers in float32, added in another order."""


def train_on_two_processes(config: Config) -> None:
    both = forked_group(2 * [partial(train, config, quiet=True)])
    ends = [one.communicate()[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], ends


def losses(config: Config, event: str = "train") -> list[float]:
    return [row["loss"] for row in events(config, event)]


def assert_same_weights(one: Config, other: Config, step: int) -> None:
    found, wanted = (load_weights(checkpoint(config, step) / "model.safetensors") for config in (one, other))
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=CLOSE)


def test_two_processes_that_share_a_model_train_it_as_one_process_does(make_config):
    """Odd sizes, accumulated batches, a clipped gradient, a learned threshold, validation, and both ways to resume."""
    options = {
        "steps": 8,
        "save_every": 4,
        "validate_every": 4,
        "clip_norm": 1.0,
        "model_width": 18,
        "model_feed_forward": 25,
        "model_threshold": "learned",
        "model_target_sparsity": 0.8,
    }
    alone = make_config("alone", accumulate=4, **options)
    train(with_train(alone, steps=4), quiet=True)

    begun_alone = with_train(alone, directory=str(Path(alone.train.directory).parent / "begun-alone"))
    train(with_train(begun_alone, steps=4), quiet=True)
    sharded = make_config("sharded", accumulate=2, sharding="full", **options)
    train_on_two_processes(sharded)
    train_on_two_processes(with_train(begun_alone, accumulate=2, sharding="full"))
    train(alone, quiet=True)

    for config in (sharded, begun_alone):
        assert losses(config) == pytest.approx(losses(alone), abs=CLOSE)
        assert losses(config, "valid") == pytest.approx(losses(alone, "valid"), abs=CLOSE)
        assert_same_weights(config, alone, 8)
    parts = list((checkpoint(sharded, 8) / "optimiser").iterdir())
    assert len(parts) == 2
    assert {part.suffix for part in parts} == {".safetensors"}
    assert (checkpoint(sharded, 4) / "optimiser").is_dir(), "the newest two keep their optimisers"
    assert Checkpoints(Path(sharded.train.directory) / "checkpoints", 3).latest() == checkpoint(sharded, 8)
    assert Translator.load(Path(sharded.train.directory) / "best", "cpu").translate(["the dog ."])

    more = [with_train(config, accumulate=4, sharding="none", steps=11) for config in (sharded, alone)]
    for config in more:
        train(config, quiet=True)
    assert losses(more[0]) == pytest.approx(losses(more[1]), abs=CLOSE)
    assert_same_weights(*more, step=11)


def test_one_process_has_nothing_to_share(make_config):
    plain, full = make_config("plain", steps=2, save_every=2), make_config("full", steps=2, save_every=2)
    train(plain, quiet=True)
    train(with_train(full, sharding="full"), quiet=True)
    assert losses(plain) == losses(full)


def test_a_compiled_step_is_refused(make_config):
    with pytest.raises(ValueError, match="compile is 'on'; wanted auto or off with sharding"):
        make_config(sharding="full", compile="on")
