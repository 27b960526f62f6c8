"""Checkpoints are whole or absent, old ones go, and averages are means."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from rela import files
from rela.config import Config, ModelConfig
from rela.model.folder import WEIGHTS, ModelFolderError, load_weights, save_folder, save_weights, unique_weights
from rela.model.transformer import Transformer
from rela.training import checkpoint as checkpoint_module
from rela.training.checkpoint import (
    OPTIMISER,
    PROGRESS,
    CheckpointError,
    Checkpoints,
    DamagedCheckpoint,
    average_weights,
    optimiser_tensors,
    restore_optimiser,
)

SHAPE = ModelConfig(
    vocabulary_size=20, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8, max_length=9
)


def model(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(SHAPE)


def progress(step: int) -> dict:
    return {
        "step": step,
        "position": {"epoch": 0, "shard": 0, "batch": step},
        "best_loss": None,
        "bad_validations": 0,
        "batches": 1,
        "data": [1, 2, 3],
    }


def save(checkpoints: Checkpoints, step: int, seed: int = 0):
    optimiser = {"0.exp_avg": torch.full((3,), float(step))}
    return checkpoints.save(progress(step), Config(model=SHAPE), unique_weights(model(seed)), optimiser, b"subwords")


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.directory.iterdir())


def test_what_is_saved_is_loaded(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    assert checkpoints.latest() is None
    path = save(checkpoints, 7, seed=3)
    assert checkpoints.latest() == path
    loaded, weights, optimiser = checkpoints.load(path)
    assert loaded == progress(7)
    assert optimiser["0.exp_avg"].tolist() == [7.0] * 3
    for name, tensor in unique_weights(model(3)).items():
        assert torch.equal(weights[name], tensor), name


def test_old_checkpoints_go_and_the_newest_two_keep_their_optimisers(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (5, 10, 15, 20, 1000, 10_000_000):
        save(checkpoints, step)
    assert [path.name for path in checkpoints.paths()] == ["step-0000020", "step-0001000", "step-10000000"]
    assert [(path / OPTIMISER).exists() for path in checkpoints.paths()] == [False, True, True]
    assert checkpoints.latest() == tmp_path / "step-10000000"


@pytest.mark.parametrize(
    ("module", "broken"),
    [(checkpoint_module, "save_weights"), (checkpoint_module, "save_config"), (files, "replace_folder")],
)
def test_a_failure_while_writing_leaves_the_old_checkpoint_and_nothing_else(tmp_path, monkeypatch, module, broken):
    checkpoints = Checkpoints(tmp_path, keep=3)
    old = save(checkpoints, 5, seed=1)
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    calls = []

    def fail(*_):
        calls.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, broken, fail)
    with pytest.raises(
        CheckpointError, match=r"step-0000010 could not be written .*No space.*last whole one is step-0000005"
    ):
        save(checkpoints, 10)
    assert calls
    assert names(checkpoints) == ["step-0000005"]
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    checkpoints.load(old)


def test_the_optimiser_file_failing_leaves_nothing_either(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=3)
    write, calls = checkpoint_module.save_weights, []

    def fail_on_second(weights, path, subwords=None):
        calls.append(path)
        if len(calls) == 2:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        write(weights, path, subwords)

    monkeypatch.setattr(checkpoint_module, "save_weights", fail_on_second)
    with pytest.raises(CheckpointError, match="there is none before it"):
        save(checkpoints, 5)
    assert names(checkpoints) == []


def test_what_a_killed_process_left_is_no_checkpoint_and_goes_with_the_next_save(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    save(checkpoints, 5)
    (tmp_path / ".step-0000010.4242.new").mkdir()
    (tmp_path / ".step-0000010.4242.new" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "step-0000009").mkdir()  # half deleted
    assert [path.name for path in checkpoints.paths()] == ["step-0000005"]
    save(checkpoints, 10)
    assert not list(tmp_path.glob(".*"))
    assert checkpoints.latest() == tmp_path / "step-0000010"


WRONG_TYPES = [{"step": "3"}, {"step": None}, {"position": 3}, {"best_loss": "low"}, {"data": 7}, {"checksums": [1]}]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({"step": 3}),
        *(json.dumps(progress(5) | wrong) for wrong in WRONG_TYPES),
    ],
)
def test_damaged_progress_is_one_line(tmp_path, content):
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = save(checkpoints, 5)
    (path / PROGRESS).write_text(content)
    with pytest.raises(CheckpointError, match=r"progress\.json is damaged") as caught:
        checkpoints.load(path)
    assert "\n" not in str(caught.value)


def test_a_removed_checkpoint_is_whole_or_gone_wherever_the_process_is_killed(tmp_path, monkeypatch):
    """Killed while files go one by one: their folder has no name any more, and goes with the next run."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    first = save(checkpoints, 5)
    save(checkpoints, 10)
    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
        save(checkpoints, 15)
    assert not first.exists()
    assert [path.name for path in checkpoints.paths()] == ["step-0000010", "step-0000015"]
    files.remove_leftovers(tmp_path)
    assert names(checkpoints) == ["step-0000010", "step-0000015"]


def test_two_checkpoints_with_optimisers_stay_where_one_is_to_be_kept(tmp_path):
    """A run must be able to go on when the newest is damaged."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (5, 10, 15):
        save(checkpoints, step)
    assert [path.name for path in checkpoints.resumable()] == ["step-0000015", "step-0000010"]


def test_a_damaged_checkpoint_is_set_aside_and_never_lost(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for _ in range(3):
        checkpoints.set_aside(save(checkpoints, 5))
    assert names(checkpoints) == ["damaged-step-0000005", "damaged-step-0000005-2", "damaged-step-0000005-3"]
    assert checkpoints.latest() is None


@pytest.mark.parametrize("name", ["model.safetensors", OPTIMISER])
def test_truncated_tensors_are_named(tmp_path, name):
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = save(checkpoints, 5)
    whole = (path / name).read_bytes()
    for content in (whole[:-7], whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]):  # cut short; one bit turned
        (path / name).write_bytes(content)
        with pytest.raises(DamagedCheckpoint, match=f"{name} is damaged or truncated"):
            checkpoints.load(path)


def test_checkpoints_of_older_versions_have_no_checksums(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = save(checkpoints, 5)
    (path / PROGRESS).write_text(json.dumps(progress(5)))
    assert checkpoints.load(path)[0] == progress(5)
    (path / OPTIMISER).write_bytes((path / OPTIMISER).read_bytes()[:-7])
    with pytest.raises(ModelFolderError, match=f"{OPTIMISER} is damaged or truncated"):
        checkpoints.load(path)


def test_an_optimiser_goes_on_as_if_it_had_never_stopped():
    def steps(net, optimiser, first: int, last: int) -> None:
        for step in range(first, last):
            torch.manual_seed(step)
            loss = sum((parameter * torch.randn_like(parameter)).sum() for parameter in net.parameters())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def adam(net):
        return torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.9, 0.98))

    straight, stopped = model(), model()
    steps(straight, adam(straight), 0, 10)
    optimiser = adam(stopped)
    steps(stopped, optimiser, 0, 4)
    stored = {name: tensor.clone() for name, tensor in optimiser_tensors(optimiser).items()}
    again = adam(stopped)
    restore_optimiser(again, stored)
    steps(stopped, again, 4, 10)
    for one, two in zip(straight.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(one, two)
    del stored["0.exp_avg"], stored["0.exp_avg_sq"], stored["0.step"]
    with pytest.raises(CheckpointError, match="optimiser"):
        restore_optimiser(adam(stopped), stored)


def test_an_average_is_the_mean(tmp_path):
    folders = []
    for seed in range(3):
        folders.append(tmp_path / str(seed))
        save_folder(folders[-1], Config(model=SHAPE), unique_weights(model(seed)), b"subwords")
    mean = average_weights(folders)
    for name, tensor in mean.items():
        each = torch.stack([load_weights(folder / "model.safetensors")[name].double() for folder in folders])
        assert torch.equal(tensor, each.mean(0).float())
    for name, tensor in average_weights(folders[:1]).items():
        assert torch.equal(tensor, unique_weights(model(0))[name])


def test_models_that_do_not_belong_together_are_not_averaged(tmp_path):
    def folder(name: str, shape: ModelConfig = SHAPE, subwords: bytes = b"subwords"):
        save_folder(tmp_path / name, Config(model=shape), unique_weights(Transformer(shape)), subwords)
        return tmp_path / name

    first = folder("first")
    lacking = folder("lacking")
    weights = load_weights(lacking / WEIGHTS)
    save_weights(dict(list(weights.items())[1:]), lacking / WEIGHTS, b"subwords")
    with pytest.raises(ModelFolderError, match="other tensors"):
        average_weights([first, lacking])
    wide = folder("wide")
    save_weights({name: torch.cat([tensor, tensor]) for name, tensor in weights.items()}, wide / WEIGHTS, b"subwords")
    with pytest.raises(ModelFolderError, match=r"is \[.*first has"):
        average_weights([first, wide])
    with pytest.raises(ModelFolderError, match=r"different subwords\.model"):
        average_weights([first, folder("text", subwords=b"other")])
    with pytest.raises(ModelFolderError, match="no model folders"):
        average_weights([])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("heads", 1),
        ("norm_first", True),
        ("threshold", 0.25),
        ("cross_attention", "softmax+gated-rms"),
        ("vocabulary_size", 21),
    ],
)
def test_weights_of_the_same_shapes_that_mean_something_else_are_not_averaged(tmp_path, setting, value):
    other = ModelConfig(**{**vars(SHAPE), setting: value})
    for name, shape in (("first", SHAPE), ("other", other)):
        save_folder(tmp_path / name, Config(model=shape), unique_weights(Transformer(shape)), b"subwords")
    with pytest.raises(ModelFolderError, match=rf"other has model\.{setting} = .*; wanted checkpoints of one run"):
        average_weights([tmp_path / "first", tmp_path / "other"])


def test_models_of_other_languages_are_not_averaged_and_other_dropout_is_no_matter(tmp_path):
    config = Config(model=SHAPE)
    back = replace(config, data=replace(config.data, source_language="de", target_language="en"))
    calm = replace(config, model=replace(SHAPE, dropout=0.3))
    for name, each in (("there", config), ("back", back), ("calm", calm)):
        save_folder(tmp_path / name, each, unique_weights(model()), b"subwords")
    with pytest.raises(ModelFolderError, match=r"back has data.source_language = 'de', and .*there has"):
        average_weights([tmp_path / "there", tmp_path / "back"])
    assert average_weights([tmp_path / "there", tmp_path / "calm"])
