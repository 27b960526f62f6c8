"""Model folders to transformers and back: the Auto classes load them, and nothing is lost on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import rela
from rela.data.subwords import pack_models, train_subwords
from rela.decoding.translate import Translator
from rela.hugging_face.convert import from_hugging_face, generation_config, to_hugging_face
from rela.model.folder import ModelFolderError
from tests.tiny_models import subwords, tiny_folder, tiny_translator, toy_pairs

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("convert")
    tiny_folder(root / "ours")
    (root / "ours" / "README.md").write_text("a card")
    return root / "ours", to_hugging_face(root / "ours", root / "theirs")


def test_the_auto_classes_load_what_was_converted(folders: tuple[Path, Path]):
    rela.register_transformers()
    rela.register_transformers()
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folders[1], output_loading_info=True)
    assert not any(report.values())
    assert type(transformers.AutoConfig.from_pretrained(folders[1])).__name__ == "RelaConfig"
    assert type(transformers.AutoTokenizer.from_pretrained(folders[1])).__name__ == "RelaTokenizer"
    assert model.output.weight is model.encoder.embedding.table.weight
    assert model.generation_config.num_beams == 4
    assert torch.equal(model.encoder.embedding.positions, tiny_translator().model.source_embedding.positions)


def test_there_and_back_is_the_same_folder(folders: tuple[Path, Path], tmp_path: Path):
    ours, theirs = folders
    from_hugging_face(theirs, tmp_path / "back")
    for file in ours.iterdir():
        assert (tmp_path / "back" / file.name).read_bytes() == file.read_bytes(), file.name
    assert len({file.stat().st_mode for file in theirs.iterdir()}) == 1, "who may read one may read all"


def test_nothing_but_an_earlier_conversion_is_replaced(folders: tuple[Path, Path], tmp_path: Path):
    ours, theirs = (shutil.copytree(folder, tmp_path / folder.name) for folder in folders)
    bert = shutil.copytree(theirs, tmp_path / "bert")
    (bert / "config.json").write_text(json.dumps({"model_type": "bert"}))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for convert, source, out, message in (
        (to_hugging_face, ours, ours, "lies in the model folder"),
        (to_hugging_face, ours, ours / "inside", "lies in the model folder"),
        (to_hugging_face, folders[0], ours, r"has no config\.json; it is not replaced"),
        (to_hugging_face, ours, bert, "holds a model of type bert; it is not replaced"),
        (from_hugging_face, theirs, theirs, "lies in the model folder"),
        (from_hugging_face, theirs, bert, r"has no config\.yaml; it is not replaced"),
    ):
        with pytest.raises(ModelFolderError, match=message):
            convert(source, out)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (theirs / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"holds notes\.txt, which would be lost"):
        to_hugging_face(ours, theirs)
    (theirs / "notes.txt").unlink()
    (ours / "README.md").unlink()
    to_hugging_face(ours, theirs)
    assert (theirs / "README.md").read_text() == "a card", "which nobody wrote anew"


def test_a_run_is_taken_for_its_model(folders: tuple[Path, Path], tmp_path: Path):
    shutil.copytree(folders[0], tmp_path / "run" / "model")
    to_hugging_face(tmp_path / "run", tmp_path / "theirs")
    assert (tmp_path / "theirs" / "model.safetensors").read_bytes() == (folders[1] / "model.safetensors").read_bytes()


def test_only_our_models_come_back(folders: tuple[Path, Path], tmp_path: Path):
    with pytest.raises(ModelFolderError, match=r"has no config\.json"):
        from_hugging_face(folders[0], tmp_path / "out")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "config.json").write_text(json.dumps({"model_type": "marian"}))
    with pytest.raises(ModelFolderError, match="holds a model of type marian"):
        from_hugging_face(theirs, tmp_path / "out")
    (theirs / "config.json").write_text("{")
    with pytest.raises(ModelFolderError, match="is no JSON"):
        from_hugging_face(theirs, tmp_path / "out")
    (theirs / "config.json").write_text(json.dumps({"model_type": "rela"}))
    with pytest.raises(ModelFolderError, match=r"has no subwords\.model"):
        from_hugging_face(theirs, tmp_path / "out")
    with pytest.raises(ModelFolderError, match="it is not replaced"):
        to_hugging_face(folders[0], tmp_path)


def drop(tensors: dict[str, torch.Tensor], name: str) -> None:
    del tensors[name]


def cut(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = tensors[name][:-1].contiguous()


def add(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors["other"] = tensors[name].clone()


def spoil(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name][0] = torch.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"theirs does not fit its config.json: missing encoder.layers.0.feed_forward"),
        (cut, r"theirs does not fit its config.json: mismatched .*encoder.layers.0.feed_forward"),
        (add, r"theirs does not fit its config.json: unexpected other"),
        (spoil, r"theirs: encoder.layers.0.feed_forward.*holds values that are no finite numbers"),
    ],
)
def test_weights_that_are_not_whole_are_refused(folders: tuple[Path, Path], tmp_path: Path, change, message):
    """By itself transformers puts random numbers where a tensor is missing."""
    theirs = shutil.copytree(folders[1], tmp_path / "theirs")
    tensors = load_file(theirs / "model.safetensors")
    change(tensors, next(name for name in tensors if name.startswith("encoder.layers.0.feed_forward")))
    save_file(tensors, theirs / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFolderError, match=message):
        from_hugging_face(theirs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_weights_pickles_and_foreign_subwords_are_refused(folders: tuple[Path, Path], tmp_path: Path):
    theirs = shutil.copytree(folders[1], tmp_path / "theirs")
    weights, pieces = theirs / "model.safetensors", theirs / "subwords.model"
    own, text = pieces.read_bytes(), [target for _, target in toy_pairs(200)]
    for data, message in (
        (b"no model", r"subwords\.model: these 8 bytes are no SentencePiece model"),
        (train_subwords(text, 200).model, r"subwords\.model has 200 subwords; the model wants 300"),
        (train_subwords(text, 300).model, r"is not the subword model that the weights were trained with"),
    ):
        pieces.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            from_hugging_face(theirs, tmp_path / "out")
    pieces.write_bytes(own)
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelFolderError, match=r"the weights of .*theirs are damaged or truncated"):
        from_hugging_face(theirs, tmp_path / "out")
    weights.unlink()
    torch.save({}, theirs / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        from_hugging_face(theirs, tmp_path / "out")


def test_search_never_writes_what_ours_does_not():
    config = generation_config(tiny_translator().config)
    assert (config.suppress_tokens, config.max_new_tokens) == ([0, 1, 3], 120)


def test_separate_vocabularies_are_refused(tmp_path: Path):
    """A tokenizer has one."""
    tiny = tiny_translator()
    Translator(tiny.model, pack_models(subwords(), subwords()), tiny.config, "cpu").save(tmp_path / "two")
    with pytest.raises(ModelFolderError, match="has separate vocabularies"):
        to_hugging_face(tmp_path / "two", tmp_path / "hf")
