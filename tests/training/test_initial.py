"""Beginning with the weights of another model: what is taken, said and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rela.files import checksum
from rela.model.folder import ModelFolderError
from rela.training.trainer import train
from tests.tiny_models import tiny_folder
from tests.training.training_files import checkpoint, events, final_bytes, with_train

STILL = {"learning_rate": 1e-30, "steps": 2, "save_every": 1, "average_last": 1}  # a rate that changes no weight


@pytest.fixture
def trained(make_config) -> Path:
    """The folder of a short run."""
    config = make_config("first", steps=3, save_every=3, average_last=1)
    train(config, quiet=True)
    return Path(config.train.directory)


def test_training_begins_with_the_weights_of_a_run_folder_or_checkpoint(make_config, trained, capsys):
    wanted = (trained / "model" / "model.safetensors").read_bytes()
    for number, folder in enumerate((trained, trained / "model", trained / "checkpoints" / "step-0000003")):
        config = make_config(f"second{number}", **STILL, from_=str(folder))
        train(config)
        assert capsys.readouterr().err.splitlines()[0].endswith(f"from the weights of {folder}, to step 2")
        assert (checkpoint(config, 2) / "model.safetensors").read_bytes() == wanted
        (row,) = events(config, "from")
        assert (row["model"], row["sha256"]) == (str(folder), checksum(trained / "model" / "model.safetensors"))
        assert f"from: {folder}" in (Path(config.train.directory) / "model" / "config.yaml").read_text()


def test_a_resumed_run_needs_the_first_weights_no_more(make_config, trained):
    straight, parts = (make_config(name, steps=4, from_=str(trained), average_last=1) for name in ("one", "two"))
    train(straight, quiet=True)
    train(with_train(parts, steps=2), quiet=True)
    shutil.rmtree(trained)
    train(parts, quiet=True)
    assert final_bytes(parts) == final_bytes(straight)
    assert len(events(parts, "from")) == 1


def test_other_shapes_heads_and_vocabularies_are_refused_in_a_line(make_config, trained, tmp_path):
    foreign = tmp_path / "foreign"
    tiny_folder(foreign)
    refused = {
        "has another vocabulary than": make_config("a", from_=str(foreign)),
        "has 2 heads; wanted 4": make_config("b", from_=str(trained), model_heads=4),
        "lacks": make_config("c", from_=str(trained), model_decoder_layers=2),
        "is .16. wide|is \\[": make_config("d", from_=str(trained), model_width=32),
        "is not a model folder": make_config("e", from_=str(tmp_path / "nothing")),
    }
    for wrong, config in refused.items():
        with pytest.raises(ModelFolderError, match=f"train.from: .*({wrong})") as caught:
            train(config, quiet=True)
        assert "\n" not in str(caught.value)
        assert not (Path(config.train.directory) / "checkpoints").exists()


def test_another_kind_with_the_same_tensors_is_said(make_config, trained):
    config = make_config("other", **STILL, from_=str(trained), model_cross_attention="rela-g-gelu")
    with pytest.warns(UserWarning, match="the cross attention of .* is rela-g, here rela-g-gelu"):
        train(config, quiet=True)
