"""Exchanged Hugging Face models under what people train and run them with: Trainer, LoRA, torch.compile, offloading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rela
from rela.attention import hugging_face
from rela.attention.hugging_face import ATTACHED, attentions
from tests.attention.hugging_face_models import checkpointing_option, make

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this release of transformers has no attention interface", allow_module_level=True)

IDS = torch.randint(2, 60, (2, 7), generator=torch.Generator().manual_seed(1))
LEFT = (torch.arange(7) >= torch.tensor([[0], [3]])).long()
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def llama(layers: int = 2, **options: Any) -> Any:
    model = make("llama", num_hidden_layers=layers)
    rela.replace_attention(model, "rela-g", **options)
    return model


def logits(model: Any, **options: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS, attention_mask=LEFT, **options).logits


def attached_parameters(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if f"{ATTACHED}." in name}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["llama", "deepseek_v3", "gpt2"])
def test_autocast_takes_what_rotary_positions_leave_in_float32(name: str, compiled: bool):
    """Values are in half precision beside them; a cache, which casts them, is what `Trainer` goes without."""
    theirs: Any = make(name, attn_implementation="sdpa")
    ours: Any = make(name)
    rela.replace_attention(ours, "softmax")
    call = torch.compile(ours, backend="eager", fullgraph=name == "llama") if compiled else ours
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = (model(input_ids=IDS, use_cache=False).logits for model in (call, theirs))
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05 * wanted.abs().max().item())
    found.float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters() if parameter.grad is not None)


@pytest.mark.filterwarnings("ignore::UserWarning:torch.utils.data")
def test_the_trainer_trains_and_saves_norms_and_thresholds(tmp_path: Path):
    pytest.importorskip("accelerate")
    model = llama(threshold="learned")
    before = attached_parameters(model)
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=2,
        learning_rate=0.1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **{checkpointing_option(): True},
    )
    rows = [{"input_ids": ids, "attention_mask": mask, "labels": ids} for ids, mask in zip(IDS, LEFT, strict=True)]
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    assert all(not torch.equal(p, before[name]) for name, p in attached_parameters(model).items())
    trainer.save_model(str(tmp_path / "saved"))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert torch.equal(logits(loaded), logits(model.eval()))


def test_lora_trains_the_norms_too_and_is_saved_with_them(tmp_path: Path):
    """`modules_to_save=["rela_attention"]` is how PEFT is told; the adapter's own copy is the one that computes."""
    peft = pytest.importorskip("peft")
    base = llama(threshold="learned", target_sparsity=0.8)
    wanted = logits(base)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=[ATTACHED])
    model = peft.get_peft_model(base, config)
    torch.testing.assert_close(logits(model), wanted)
    trained = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    assert len(trained) == 2 * (4 + 3)  # two matrices for each projection; gain, gate and threshold
    loss = model(input_ids=IDS, labels=IDS).loss + rela.collect_sparsity_penalty(model)
    loss.backward()
    assert all(parameter.grad is not None for parameter in trained)
    torch.optim.SGD(trained, 0.5).step()
    after = logits(model.eval())
    assert not torch.allclose(after, wanted, atol=1e-4)
    with model.disable_adapter():
        torch.testing.assert_close(logits(model), wanted)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(llama(threshold="learned"), tmp_path)
    torch.testing.assert_close(logits(loaded), after)
    torch.testing.assert_close(logits(model.merge_and_unload()), after, **CLOSE)


def test_torch_compile_takes_the_whole_model_with_padding_on_the_left():
    model = llama(1, threshold="learned").train()  # without dropout
    asked = {"input_ids": IDS, "attention_mask": LEFT, "labels": IDS, "use_cache": False}
    wanted = model(**asked)
    wanted.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)(**asked)
    torch.testing.assert_close(compiled.logits, wanted.logits, **CLOSE)
    compiled.loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], **CLOSE)


def test_softmax_of_ours_compiles_over_changing_lengths():
    """Its kernel wants to know whether a call is causal, and takes no symbol that says that there are two queries."""
    torch.compiler.reset()
    model = make("llama", num_hidden_layers=1)
    rela.replace_attention(model, "softmax")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for length in (3, 5, 6):
            ids = IDS[:, :length]
            torch.testing.assert_close(compiled(ids).logits, model(ids).logits, **CLOSE)


def test_layers_on_several_devices_load_and_run(tmp_path: Path):
    """One of them left on disk, whose parameters come to the device when they are called for."""
    pytest.importorskip("accelerate")
    model = llama(threshold="learned")
    model.save_pretrained(tmp_path / "saved")
    places = {
        "model.embed_tokens": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "cpu",
    }
    spread = type(model).from_pretrained(tmp_path / "saved", device_map=places, offload_folder=str(tmp_path / "disk"))
    devices = [{p.device.type for p in layer.parameters()} for layer in spread.model.layers]
    assert devices == [{"cpu"}, {"meta"}]
    torch.testing.assert_close(logits(spread), logits(model), **CLOSE)


@pytest.mark.filterwarnings("ignore:Attempting to save a model with offloaded modules")
def test_a_model_that_is_offloaded_may_be_exchanged(tmp_path: Path):
    """Its weights are on no device between forwards; the new norms and thresholds stay where it computes."""
    pytest.importorskip("accelerate")
    model = make("llama")
    model.save_pretrained(tmp_path / "softmax")
    places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu"}
    places |= {"model.rotary_emb": "cpu", "lm_head": "cpu"}
    folders = {"device_map": places, "offload_folder": str(tmp_path / "disk")}
    offloaded = type(model).from_pretrained(tmp_path / "softmax", **folders)
    replaced = rela.replace_attention(offloaded, "rela-g", threshold="learned")
    assert {parameter.device.type for parameter in replaced.added} == {"cpu"}
    rela.replace_attention(model, "rela-g", threshold="learned")
    model.load_state_dict(attached_parameters(offloaded), strict=False)
    wanted = logits(model)
    torch.testing.assert_close(logits(offloaded), wanted, **CLOSE)
    offloaded.save_pretrained(tmp_path / "rela")
    torch.testing.assert_close(logits(type(model).from_pretrained(tmp_path / "rela")), wanted, **CLOSE)


@pytest.mark.parametrize("name", ["marian", "t5", "whisper"])
def test_an_encoder_alone_may_be_exchanged_and_is_saved_as_such(name: str, tmp_path: Path):
    """Also where its decoder has the same configuration; the decoder stays what it was."""
    model: Any = make(name)
    source = (
        {"input_features": torch.ones(2, 4, 18)} if name == "whisper" else {"input_ids": IDS, "attention_mask": LEFT}
    )

    def run(model: Any) -> torch.Tensor:
        with torch.no_grad():
            return model(**source, decoder_input_ids=IDS).logits

    before = run(model)
    replaced = rela.replace_attention(model.get_encoder(), "softmax")
    torch.testing.assert_close(run(model), before, **CLOSE)
    replaced.undo()
    assert torch.equal(run(model), before)
    names = rela.replace_attention(model.get_encoder(), "relu").names  # without parameters that could tell
    wanted = run(model)
    assert not torch.equal(wanted, before)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    exchanged = [name for name, attention in attentions(loaded).items() if hasattr(attention, ATTACHED)]
    assert len(exchanged) == len(names)
    assert all("encoder." in name for name in exchanged)
    torch.testing.assert_close(run(loaded), wanted, **CLOSE)
    rela.replace_attention(loaded, "relu")
    loaded.save_pretrained(tmp_path)
    whole = type(model).from_pretrained(tmp_path)
    assert all(hasattr(attention, ATTACHED) for attention in attentions(whole).values())


def test_long_sums_in_float16_reach_the_norm_in_float32():
    model = make("bert")
    rela.replace_attention(model, "rela-g")
    attention = attentions(model)["encoder.layer.0.attention.self"].half()
    q = k = v = torch.full((1, 4, 300, 8), 6.0, dtype=torch.float16)  # 300 · 6 · 6² · √8 is above 65,504
    with torch.no_grad():
        out, _ = hugging_face.forward(attention, q, k, v, None)
    assert out.dtype == torch.float16
    assert out.isfinite().all()
    assert out.any()


def test_each_call_of_a_shared_attention_counts_in_the_penalty():
    """ALBERT calls one attention in every layer; where no weight is left in any, all have the same penalty."""
    penalties = []
    for layers in (1, 3):
        model = make("albert", num_hidden_layers=layers).train()
        replaced = rela.replace_attention(model, "rela-g", threshold="learned", target_sparsity=0.8)
        shared = model.get_submodule(replaced.names[0])
        torch.nn.init.constant_(shared.get_parameter(f"{ATTACHED}.threshold"), 1e6)
        for _ in range(2):  # a forward forgets the one before
            model(input_ids=IDS)
        penalties.append(rela.collect_sparsity_penalty(model).item())
    assert penalties == pytest.approx([0.04, 0.12])
    replaced.undo()
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
