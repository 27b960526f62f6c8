"""A model folder is read back as it was written, and what is wrong with one is said in one line."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from rela.config import Config, load_config, read_yaml, save_config
from rela.model import folder as folder_module
from rela.model.folder import CONFIG, SUBWORDS, WEIGHTS, ModelFolderError, load_folder, save_folder, unique_weights
from tests.model.model_cases import hidden_states, make, random_pairs, small


def save(path, model, config: Config | None = None) -> None:
    save_folder(path, config or Config(model=model.config), unique_weights(model), b"the subword model")


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "model", make())
    return tmp_path / "model"


@pytest.mark.parametrize(
    "options",
    [
        {"tied_embeddings": "all"},
        {"tied_embeddings": "target"},
        {"tied_embeddings": "none"},
        {"norm_first": True},
        {"threshold": "learned", "target_sparsity": 0.8},
    ],
)
def test_what_is_written_is_read_back(tmp_path, options):
    model = make("rela-g", **options)
    save(tmp_path / "model", model)
    again, config, subwords = load_folder(tmp_path / "model")
    assert (config.model, subwords) == (model.config, b"the subword model")
    assert not again.training
    pairs = random_pairs(3)
    for one, two in zip(hidden_states(model, pairs), hidden_states(again, pairs), strict=True):
        assert torch.equal(one, two)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_whoever_may_read_the_configuration_may_read_the_weights(folder):
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1


def test_tied_weights_are_stored_once(folder):
    weights = load_file(folder / WEIGHTS)
    assert [name for name in weights if "table" in name or "output" in name] == ["source_embedding.table.weight"]


def test_saving_again_replaces_the_folder(folder, tmp_path):
    other = make(seed=9)
    of_the_model = [folder / name for name in ("alignment.json", "aligner.safetensors", "check.json")]
    for path in of_the_model:
        path.write_text("{}")
    save(folder, other)
    again, _, _ = load_folder(folder)
    assert torch.equal(again.output.weight, other.output.weight)
    assert not any(path.exists() for path in of_the_model), "heads and scores of another model must not outlive it"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_longest_sentence_may_change_without_touching_the_weights(folder):
    config = load_config(folder / CONFIG)
    save_config(dataclasses.replace(config, model=dataclasses.replace(config.model, max_length=99)), folder / CONFIG)
    assert load_folder(folder)[0].source_embedding.positions.shape == (99, 24)


def test_a_failed_save_leaves_the_old_folder_and_nothing_else(folder, tmp_path, monkeypatch):
    before = load_folder(folder)[0].output.weight.clone()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "save_config", fail)
    with pytest.raises(OSError, match="No space"):
        save(folder, make(seed=9))
    assert torch.equal(load_folder(folder)[0].output.weight, before)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_model_folder_is_never_replaced(folder, tmp_path):
    (tmp_path / "file").write_text("precious")
    (folder / "checkpoints").mkdir()
    for path in (tmp_path, tmp_path / "file", folder):
        with pytest.raises(ModelFolderError, match="not replaced"):
            save(path, make())
    assert (tmp_path / "file").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty", make())
    load_folder(tmp_path / "empty")


def damaged(folder, name: str) -> str:
    with pytest.raises(ModelFolderError) as caught:
        load_folder(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, SUBWORDS])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    damaged(folder, name)


def test_a_missing_folder_is_named(tmp_path):
    assert "not a model folder" in damaged(tmp_path / "nowhere", "nowhere")


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights_are_named(folder, keep):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:keep])
    assert "damaged or truncated" in damaged(folder, WEIGHTS)


def test_weights_of_other_shapes_are_named(folder):
    save_config(Config(model=small(width=48)), folder / CONFIG)
    message = damaged(folder, WEIGHTS)
    assert "24" in message
    assert "48" in message


def test_too_few_and_too_many_weights_are_named(folder):
    weights = load_file(folder / WEIGHTS)
    save_file(
        {name: tensor for name, tensor in weights.items() if name != "encoder.0.attention.norm.gate"}, folder / WEIGHTS
    )
    assert "lacks" in damaged(folder, "encoder.0.attention.norm.gate")
    save_file({**weights, "decoder.7.stray": torch.zeros(1)}, folder / WEIGHTS)
    assert "does not know" in damaged(folder, "decoder.7.stray")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "None"),
        ("model: {widht: 3}", "widht"),
        ("model: {width: big}", "'big'"),
        ("{", "not valid YAML"),
        ("model: {encoder_attention: rela-x}", "rela-x"),
    ],
)
def test_a_wrong_config_is_named(folder, text, named):
    (folder / CONFIG).write_text(text)
    assert named in damaged(folder, CONFIG)


def test_another_subword_model_of_the_same_size_is_refused(folder):
    (folder / SUBWORDS).write_bytes(b"the foreign model")
    assert "is not the subword model that model.safetensors beside it was trained with" in damaged(folder, SUBWORDS)


def test_folders_of_older_versions_name_no_subword_model_and_are_loaded(folder):
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS)
    (folder / SUBWORDS).write_bytes(b"any model")
    assert load_folder(folder)[2] == b"any model"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"encoder_layers": 10**9}, CONFIG),
        ({"decoder_layers": 1000}, CONFIG),
        ({"width": 10**9, "heads": 1}, CONFIG),
        ({"width": 24 * 1000}, WEIGHTS),
        ({"feed_forward": 10**7}, WEIGHTS),
        ({"feed_forward": 10**12}, CONFIG),
        ({"vocabulary_size": 10**7}, WEIGHTS),
        ({"vocabulary_size": 10**12}, CONFIG),
        ({"max_length": 10**12}, CONFIG),
    ],
)
def test_a_config_of_another_size_is_refused_before_memory_is_taken(folder, change, named):
    values = read_yaml(folder / CONFIG)
    values["model"] |= change
    (folder / CONFIG).write_text(yaml.safe_dump(values))
    tracemalloc.start()
    began = time.process_time()
    damaged(folder, named)
    assert time.process_time() - began < 10
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_files_that_are_no_part_of_a_model_stay(folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "link").symlink_to("nowhere")
    save(folder, make(seed=9))
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "link").is_symlink()


HEADERS = [b"", b"\0" * 8, b"\xff" * 16, *(len(text).to_bytes(8, "little") + text for text in (b"{}", b"[]", b"null"))]


@pytest.mark.parametrize("content", HEADERS)
def test_what_is_no_header_is_one_line(folder, content):
    (folder / WEIGHTS).write_bytes(content)
    damaged(folder, WEIGHTS)
