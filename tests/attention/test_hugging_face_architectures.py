"""The ten architectures that docs/replace-attention.md names, each with everything people do with a model.

Saved and loaded, gradient checkpointing, LoRA and generation with both caches in every run of the tests; the Trainer
and torch.compile of all ten in the campaign (of Llama in test_hugging_face_training.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rela
from rela.attention.hugging_face import ATTACHED
from tests.attention.hugging_face_models import enable_checkpointing, make

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this release of transformers has no attention interface", allow_module_level=True)

WRITERS = ["llama", "qwen3", "gemma", "mistral", "gpt2", "t5", "marian", "whisper"]
NAMES = [*WRITERS, "bert", "vit"]
WITH_LOSS = {"bert": "BertForMaskedLM", "vit": "ViTForImageClassification"}
IDS = torch.randint(2, 60, (2, 7), generator=torch.Generator().manual_seed(1))
LEFT = (torch.arange(7) >= torch.tensor([[0], [3]])).long()
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def exchanged(name: str) -> Any:
    """A tiny model of this architecture with a loss, without dropout, its attention exchanged for ReLA-g."""
    model: Any = make(name)
    if name in WITH_LOSS:
        torch.manual_seed(0)
        model = getattr(transformers, WITH_LOSS[name])(model.config).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    rela.replace_attention(model, "rela-g", threshold="learned")
    return model


def rows(name: str) -> list[dict[str, Tensor]]:
    """Two examples; those of text are padded on the left."""
    text = [{"input_ids": ids, "attention_mask": mask, "labels": ids} for ids, mask in zip(IDS, LEFT, strict=True)]
    generator = torch.Generator().manual_seed(2)
    if name == "vit":
        pixels = torch.randn(2, 3, 8, 8, generator=generator)
        return [{"pixel_values": one, "labels": torch.tensor(i)} for i, one in enumerate(pixels)]
    if name == "whisper":
        return [{"input_features": one, "labels": ids} for one, ids in zip(heard(), IDS, strict=True)]
    return text


def heard() -> Tensor:
    """[2, 4, 18], what Whisper hears."""
    return torch.randn(2, 4, 18, generator=torch.Generator().manual_seed(2))


def asked(name: str) -> dict[str, Any]:
    batch: dict[str, Any] = {key: torch.stack([row[key] for row in rows(name)]) for key in rows(name)[0]}
    return batch if name in WITH_LOSS else {**batch, "use_cache": False}


def logits(model: Any, name: str) -> Tensor:
    with torch.no_grad():
        return model(**asked(name)).logits


def gradients(model: Any, name: str) -> dict[str, Tensor]:
    model.zero_grad()
    model(**asked(name)).loss.backward()
    return {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_comes_back_as_rela(name: str, tmp_path: Path):
    model = exchanged(name)
    wanted = logits(model, name)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert any(f"{ATTACHED}.threshold" in key for key, _ in loaded.named_parameters())
    assert torch.equal(logits(loaded, name), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_checkpointing_leaves_the_gradients(name: str):
    model = exchanged(name).train()
    wanted = gradients(model, name)
    assert all(wanted[key].any() for key in wanted if key.endswith(f"{ATTACHED}.threshold"))
    enable_checkpointing(model, reentrant=False)
    found = gradients(model, name)
    assert found.keys() == wanted.keys()
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient, **CLOSE, msg=lambda text, k=key: f"{k}: {text}")


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
@pytest.mark.parametrize("name", NAMES)
def test_lora_trains_projections_and_norms_and_is_saved(name: str, tmp_path: Path):
    peft = pytest.importorskip("peft")
    wanted = logits(exchanged(name), name)
    config = peft.LoraConfig(r=2, target_modules="all-linear", modules_to_save=[ATTACHED])
    model = peft.get_peft_model(exchanged(name), config)
    torch.testing.assert_close(logits(model, name), wanted, **CLOSE)
    found = gradients(model.train(), name)
    assert any(ATTACHED in key for key in found)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    torch.optim.SGD(trained, 0.5).step()
    after = logits(model.eval(), name)
    assert not torch.allclose(after, wanted, atol=1e-4)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(exchanged(name), tmp_path)
    torch.testing.assert_close(logits(loaded, name), after, **CLOSE)


@pytest.mark.parametrize("name", WRITERS)
def test_both_caches_generate_the_same_with_padding_on_the_left(name: str):
    model = exchanged(name)
    options: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "num_beams": 1}
    given = {"input_features": heard()} if name == "whisper" else {"input_ids": IDS, "attention_mask": LEFT}
    with torch.no_grad():
        static, dynamic = (model.generate(**given, cache_implementation=c, **options) for c in ("static", "dynamic"))
        without = model.generate(**given, use_cache=False, **options)
    assert torch.equal(static, dynamic)
    assert torch.equal(dynamic, without)


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo's own
@pytest.mark.parametrize("name", NAMES)
def test_torch_compile_takes_the_whole_model(name: str):
    model = exchanged(name).train()
    wanted, before = model(**asked(name)).logits.detach(), gradients(model, name)
    model.zero_grad()
    compiled = torch.compile(model, backend="aot_eager")(**asked(name))
    torch.testing.assert_close(compiled.logits, wanted, **CLOSE)
    compiled.loss.backward()
    for key, parameter in model.named_parameters():
        if key in before:
            torch.testing.assert_close(parameter.grad, before[key], **CLOSE, msg=lambda text, k=key: f"{k}: {text}")


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore::UserWarning:torch.utils.data")
@pytest.mark.parametrize("name", NAMES)
def test_the_trainer_trains_and_saves_thresholds(name: str, tmp_path: Path):
    pytest.importorskip("accelerate")
    model = exchanged(name)
    places = [key for key, _ in model.named_parameters() if key.endswith(f"{ATTACHED}.threshold")]
    before = {key: model.get_parameter(key).detach().clone() for key in places}
    settings = {"max_steps": 2, "per_device_train_batch_size": 2, "learning_rate": 0.1}
    silent = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = transformers.TrainingArguments(str(tmp_path), **settings, **silent)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows(name))
    trainer.train()
    assert places
    assert all(not torch.equal(model.get_parameter(key), before[key]) for key in places)
    trainer.save_model(str(tmp_path / "saved"))
    loaded = type(model).from_pretrained(tmp_path / "saved")
    assert torch.equal(logits(loaded, name), logits(model.eval(), name))
