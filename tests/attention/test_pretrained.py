"""Exchanged Hugging Face models, saved and loaded: the same logits, or an error where rela is not registered."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rela
from rela.attention.hugging_face import ATTACHED, attentions
from rela.attention.pretrained import masks_of
from tests.attention.hugging_face_models import GROUPED, SPECIAL, STACK, make

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this release of transformers has no attention interface", allow_module_level=True)

IDS = torch.randint(2, 60, (2, 7), generator=torch.Generator().manual_seed(1))
pytestmark = pytest.mark.filterwarnings("ignore:rela.replace_attention")


def run(model: Any) -> torch.Tensor:
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            return model(input_ids=IDS, decoder_input_ids=IDS)[0]
        pixels = {"pixel_values": torch.ones(2, 3, 8, 8)} if type(model).__name__ in ("SiglipModel", "GitModel") else {}
        return model(input_ids=IDS, **pixels)[0]


def train_a_little(model: torch.nn.Module) -> None:
    """Move every parameter, so that what is loaded is not what anybody starts from."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.requires_grad:
                continue  # Marian's positions, which are computed and not loaded
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def pair() -> torch.nn.Module:
    """Made of two others, with a configuration of each."""
    writer = make("bert-decoder", add_cross_attention=True)
    return transformers.EncoderDecoderModel(encoder=make("bert"), decoder=writer).eval()


@pytest.mark.parametrize(
    "name", ["llama", "gpt2", "bert", "marian", "t5", "longt5", "pegasus_x", "siglip", "git", "pair"]
)
def test_what_is_loaded_computes_what_was_saved(name: str, tmp_path: Path):
    model = pair() if name == "pair" else make(name)
    replaced = rela.replace_attention(model, "rela-g", threshold="learned")
    train_a_little(model)
    wanted = run(model)
    model.save_pretrained(tmp_path / "first")
    loaded, report = type(model).from_pretrained(tmp_path / "first", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    assert set(attentions(loaded)) <= set(replaced.names)
    assert torch.equal(run(loaded), wanted)
    loaded.save_pretrained(tmp_path / "second")
    assert torch.equal(run(type(model).from_pretrained(tmp_path / "second")), wanted)


@pytest.mark.parametrize("name", ["bigbird_pegasus", "pegasus_x", "longt5"])
def test_attentions_that_were_left_get_the_masks_they_add_also_when_loaded(name: str, tmp_path: Path):
    """Decoders are built, and exchanged, before what is left in the encoder is known of."""
    model = make(name)
    rela.replace_attention(model, "softmax")
    given = {"input_ids": IDS, "decoder_input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    given["attention_mask"][1, 5:] = 0
    for _ in range(2):
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path).eval()
        assert loaded.config.rela["masks"] == "additive"
        with torch.no_grad():
            torch.testing.assert_close(loaded(**given)[0], make(name)(**given)[0], atol=1e-5, rtol=1e-5)
        model = loaded


@pytest.mark.parametrize(("name", "part"), [("bigbird_pegasus", "decoder"), ("git", "image_encoder")])
def test_attentions_beside_an_exchanged_part_get_the_masks_they_add(name: str, part: str, tmp_path: Path):
    """The decoder shares its configuration with the encoder; GIT's own says nothing of masks until it is saved."""
    model = make(name)
    given = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    given["attention_mask"][1, 5:] = 0
    given |= {"decoder_input_ids": IDS} if name != "git" else {"pixel_values": torch.ones(2, 3, 8, 8)}
    with torch.no_grad():
        before = model(**given)[0]
        rela.replace_attention(model.get_decoder() if part == "decoder" else getattr(model, part), "softmax")
        torch.testing.assert_close(model(**given)[0], before, atol=1e-5, rtol=1e-5)
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path).eval()
        torch.testing.assert_close(loaded(**given)[0], before, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("relu", {"threshold": 0.25}),
        ("sparsemax", {}),
        ("entmax:1.3", {}),
        ("softmax", {}),
        ("rela-i", {}),
        (rela.Kind("relu2", "rms"), {"threshold": "learned", "target_sparsity": 0.8, "backend": "reference"}),
    ],
)
def test_kind_threshold_and_the_rest_come_back(kind: str | rela.Kind, options: dict[str, Any], tmp_path: Path):
    """Kinds without parameters too, of which the weights say nothing; by AutoModel, and in half precision."""
    model = make("llama")
    rela.replace_attention(model, kind, **options)
    train_a_little(model)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(run(loaded), run(model))
    for old, new in zip(attentions(model).values(), attentions(loaded).values(), strict=True):
        old, new = getattr(old, ATTACHED), getattr(new, ATTACHED)
        assert (new.kind, new.backend, new.target_sparsity) == (old.kind, old.backend, old.target_sparsity)
        assert type(new.threshold) is type(old.threshold)
    half = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_parts_of_other_kinds_come_back_as_they_were(name: str, tmp_path: Path):
    """Kinds and thresholds that no weight tells apart; T5's stacks have configurations of their own."""
    model = make(name)
    rela.replace_attention(model, "sparsemax")
    rela.replace_attention(model.get_encoder(), "relu", threshold=0.3)
    wanted = run(model)
    model.save_pretrained(tmp_path / "first")
    loaded = type(model).from_pretrained(tmp_path / "first")
    assert torch.equal(run(loaded), wanted)
    kinds = {attention: getattr(part, ATTACHED).kind.weights for attention, part in attentions(loaded).items()}
    assert kinds == {
        name: "relu" if name.removeprefix("model.").startswith("encoder") else "sparsemax" for name in kinds
    }
    loaded.save_pretrained(tmp_path / "second")
    assert torch.equal(run(type(model).from_pretrained(tmp_path / "second")), wanted)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("name", "part"), [("pair", "encoder"), ("pair", "decoder"), ("clip", "text_model"), ("clip", "vision_model")]
)
def test_parts_with_their_own_configuration_come_back_alone(name: str, part: str, before: bool, tmp_path: Path):
    """The rest computes softmax, with PyTorch's kernels; a model may be made of a part that was exchanged before."""
    pixels = {"pixel_values": torch.ones(2, 3, 8, 8)} if name == "clip" else {"decoder_input_ids": IDS}

    def run(model: Any) -> torch.Tensor:
        with torch.no_grad():
            return model(input_ids=IDS, **pixels)[0]

    model = pair() if name == "pair" else make(name)
    names = rela.replace_attention(getattr(model, part), "rela-g").names
    if before and name == "pair":
        model = type(model)(encoder=model.encoder, decoder=model.decoder).eval()
    wanted = run(model)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    exchanged = [name for name, attention in attentions(loaded).items() if hasattr(attention, ATTACHED)]
    assert exchanged == [f"{part}.{name}" for name in names]
    torch.testing.assert_close(run(loaded), wanted)
    others = {attention.config._attn_implementation for attention in attentions(loaded).values()} - {"rela"}
    assert others == {"sdpa"}


def test_a_model_is_saved_with_the_attention_chosen_last(tmp_path: Path):
    model = make("llama")
    softmax = run(model)
    rela.replace_attention(model, "relu")
    rectified = run(model)
    model.set_attn_implementation("eager")
    model.save_pretrained(tmp_path / "softmax")
    assert torch.equal(run(type(model).from_pretrained(tmp_path / "softmax", attn_implementation="eager")), softmax)
    assert "attn_implementation" not in json.loads((tmp_path / "softmax" / "config.json").read_text())
    model.set_attn_implementation("rela")
    model.save_pretrained(tmp_path / "rectified")
    assert torch.equal(run(type(model).from_pretrained(tmp_path / "rectified")), rectified)


@pytest.mark.parametrize("part", ["text", "vision"])
def test_the_attention_chosen_for_a_part_is_its_own(part: str, tmp_path: Path):
    """By `set_attn_implementation` before saving, and by the argument of `from_pretrained`."""

    def run(model: Any) -> torch.Tensor:
        with torch.no_grad():
            return model(input_ids=IDS, pixel_values=torch.ones(2, 3, 8, 8))[0]

    chosen = {"": "rela", "text_config": "rela", "vision_config": "rela", f"{part}_config": "sdpa"}
    model = make("clip")
    rela.replace_attention(model, "rela-g")
    model.save_pretrained(tmp_path / "whole")
    whole = run(model)
    model.set_attn_implementation({f"{part}_config": "sdpa"})
    wanted = run(model)
    assert not torch.allclose(wanted, whole)
    model.save_pretrained(tmp_path / "part")
    torch.testing.assert_close(run(type(model).from_pretrained(tmp_path / "part")), wanted)
    loaded = type(model).from_pretrained(tmp_path / "whole", attn_implementation=chosen)
    torch.testing.assert_close(run(loaded), wanted)
    model.set_attn_implementation("rela")
    assert torch.equal(run(model), whole)
    model.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(run(type(model).from_pretrained(tmp_path / "again")), whole)


def test_a_part_put_back_after_saving_is_saved_as_softmax(tmp_path: Path):
    """T5's own configuration, which the exchange of its encoder does not touch, was written by the first saving."""
    model = make("t5")
    before = run(model)
    replaced = rela.replace_attention(model.get_encoder(), "relu")
    model.save_pretrained(tmp_path / "first")
    replaced.undo()
    model.save_pretrained(tmp_path / "second")
    loaded = type(model).from_pretrained(tmp_path / "second")
    torch.testing.assert_close(run(loaded), before)


def test_parts_are_put_back_in_reverse():
    """Marian's encoder and decoder share a configuration: putting one back would take the other with it."""
    model = make("marian")
    before = run(model)
    first = rela.replace_attention(model.get_encoder(), "relu")
    second = rela.replace_attention(model.get_decoder(), "sparsemax")
    exchanged = run(model)
    with pytest.raises(ValueError, match="another part of this model was exchanged later"):
        first.undo()
    assert torch.equal(run(model), exchanged)
    second.undo()
    first.undo()
    assert torch.equal(run(model), before)


def test_a_new_model_of_the_configuration_is_exchanged_too():
    model = make("llama")
    rela.replace_attention(model, "rela-g")
    other = type(model)(model.config)
    assert all(hasattr(attention, ATTACHED) for attention in attentions(other).values())
    other.load_state_dict(model.state_dict())
    assert torch.equal(run(other.eval()), run(model))


@pytest.mark.parametrize("name", ["gemma", "llama"])
def test_softmax_weights_under_a_configuration_of_ours_get_new_norms(name: str, tmp_path: Path):
    """What the folder has is loaded; gains are one, thresholds zero, gates small, and none is what memory held."""
    make(name).save_pretrained(tmp_path)
    wanted = make(name)
    rela.replace_attention(wanted, "rela-g", threshold="learned")
    loaded = type(wanted).from_pretrained(tmp_path, config=wanted.config)
    for key, parameter in wanted.named_parameters():
        found = loaded.get_parameter(key)
        if key.endswith(f"{ATTACHED}.norm.gate"):
            assert 0 < found.abs().max() <= (3 / found.numel()) ** 0.5
        else:
            assert torch.equal(found, parameter), key


def test_a_model_made_of_trained_parts_keeps_their_norms(tmp_path: Path):
    """`transformers` initialises in it what it does not know to have values."""
    reader, writer = make("bert"), make("bert-decoder", add_cross_attention=True)
    for part in (reader, writer):
        rela.replace_attention(part, "rela-g", threshold="learned")
        train_a_little(part)
    trained = {**{f"encoder.{name}": value.clone() for name, value in reader.state_dict().items()}}
    trained |= {f"decoder.{name}": value.clone() for name, value in writer.state_dict().items()}
    model = transformers.EncoderDecoderModel(encoder=reader, decoder=writer).eval()
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in trained.items())
    wanted = run(model)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(run(type(model).from_pretrained(tmp_path)), wanted)


def test_other_models_are_left_alone():
    rela.register_transformers()
    rela.register_transformers()
    model = make("llama", attn_implementation="sdpa")
    assert not any(hasattr(attention, ATTACHED) for attention in attentions(model).values())


def test_softmax_is_to_be_had_by_asking_for_it(tmp_path: Path):
    model = make("llama")
    wanted = run(model)
    rela.replace_attention(model, "relu")
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="eager")
    assert torch.equal(run(loaded), wanted)


def test_softmax_that_was_asked_for_is_not_ours_later(tmp_path: Path):
    """The weights are there without the norms: ours is refused until `replace_attention` is called."""
    model = make("llama")
    rela.replace_attention(model, "rela-g")
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="sdpa")
    loaded.set_attn_implementation("rela")
    with pytest.raises(ValueError, match=r"this LlamaAttention was not given to rela\.replace_attention"):
        run(loaded)
    loaded.set_attn_implementation("sdpa")
    wanted = run(loaded)
    replaced = rela.replace_attention(loaded, "relu")
    exchanged = run(loaded)
    loaded.set_attn_implementation("sdpa")
    other = type(model)(loaded.config).eval()  # shares that configuration
    assert not any(hasattr(attention, ATTACHED) for attention in attentions(other).values())
    loaded.set_attn_implementation("rela")
    assert torch.equal(run(loaded), exchanged)
    torch.testing.assert_close(run(replaced.undo()), wanted)
    rela.replace_attention(loaded, "relu")
    loaded.set_attn_implementation("sdpa")
    type(model)(loaded.config)
    loaded.set_attn_implementation("rela")
    loaded.save_pretrained(tmp_path)
    torch.testing.assert_close(run(type(model).from_pretrained(tmp_path)), exchanged)


def test_a_teacher_of_the_same_configuration_is_saved_as_softmax(tmp_path: Path):
    """`transformers` does not copy a configuration: what one model's exchange wrote is seen by the other."""
    teacher = make("llama")
    student = type(teacher)(teacher.config).eval()
    wanted = run(teacher)
    rela.replace_attention(student, "rela-g")
    exchanged = run(student)
    teacher.save_pretrained(tmp_path / "teacher")
    assert "rela" not in (tmp_path / "teacher" / "config.json").read_text()
    loaded, report = type(teacher).from_pretrained(tmp_path / "teacher", output_loading_info=True)
    assert not report["missing_keys"]
    torch.testing.assert_close(run(loaded), wanted)
    assert torch.equal(run(student), exchanged)
    student.save_pretrained(tmp_path / "student")
    torch.testing.assert_close(run(type(student).from_pretrained(tmp_path / "student")), exchanged)


def test_without_rela_loading_is_an_error(tmp_path: Path):
    """In a process that never heard of us: no softmax in its place."""
    model = make("llama")
    rela.replace_attention(model, "relu")  # no parameters, so that no missing or unexpected key could tell
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["attn_implementation"] == "rela"
    assert written["rela"]["kind"] == "relu"
    code = f"from transformers import LlamaForCausalLM; LlamaForCausalLM.from_pretrained({str(tmp_path)!r})"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode != 0
    assert 'attn_implementation="rela"` is not supported' in process.stderr


def test_a_pickled_model_runs_in_another_process(tmp_path: Path):
    """`torch.save` of a whole model, a process that is spawned: nobody imports rela there."""
    model = make("llama")
    rela.replace_attention(model, "rela-g")
    torch.save((model, IDS, run(model)), tmp_path / "model.pt")
    code = (
        "import torch; torch.set_num_threads(1)\n"
        f"model, ids, wanted = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "with torch.no_grad(): torch.testing.assert_close(model(input_ids=ids)[0], wanted)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_continuous_batching_does_not_fall_back_to_softmax(monkeypatch: pytest.MonkeyPatch):
    """Where FlashAttention is installed, it would be chosen with no more than a line in a log."""
    api = pytest.importorskip("transformers.generation.continuous_batching.continuous_api")
    monkeypatch.setattr(api, "is_flash_attn_2_available", lambda **_: True)
    model = make("llama", attn_implementation="sdpa")
    replaced = rela.replace_attention(model, "rela-g")
    settings = transformers.GenerationConfig(max_new_tokens=2, do_sample=False, eos_token_id=1, pad_token_id=0)
    with pytest.raises(ValueError, match="continuous batching would compute another attention; wanted generate"):
        model.generate_batch([[3, 4, 5]], generation_config=settings)
    assert model.config._attn_implementation == "rela"
    model = replaced.undo()
    switch = api.ContinuousBatchingManager.switch_to_cb_friendly_attn
    if "auto_switch_to_flash" in inspect.signature(switch).parameters:  # transformers 5.17 has no such choice
        switch(object(), model, auto_switch_to_flash=False)
        assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("part", ["language_model", "vision_tower"])
def test_continuous_batching_is_refused_where_a_part_was_exchanged(part: str):
    """It asks the outermost configuration, which a part does not change, and the part would ignore the paged cache."""
    pytest.importorskip("transformers.generation.continuous_batching.continuous_api")
    text = {**GROUPED, **SPECIAL, "model_type": "llama"}
    vision = {**STACK, "model_type": "clip_vision_model", "image_size": 8, "patch_size": 4}
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, attn_implementation="sdpa")
    model = transformers.LlavaForConditionalGeneration(config).eval()
    rela.replace_attention(getattr(model.model, part), "rela-g")
    settings = transformers.GenerationConfig(max_new_tokens=2, do_sample=False, eos_token_id=1, pad_token_id=0)
    with pytest.raises(ValueError, match="LlavaForConditionalGeneration was given to"):
        model.generate_batch([[3, 4, 5]], generation_config=settings)


def test_whisper_s_times_of_tokens_do_not_fall_back_to_softmax():
    """Asked for them, `generate` chooses its own eager attention, which stays chosen."""
    model = make("whisper", attn_implementation="sdpa")
    replaced = rela.replace_attention(model.get_encoder(), "rela-g")
    features = torch.zeros(1, 4, 18)
    with pytest.raises(ValueError, match="return_token_timestamps=True would compute softmax; wanted generate"):
        model.generate(features, return_token_timestamps=True)
    assert model.config._attn_implementation == "rela"
    assert model.generate(features, max_new_tokens=2).shape[0] == 1
    replaced.undo()
    with pytest.raises(Exception, match="timestamps") as other:  # of their own: this model has no such tokens
        model.generate(features, return_token_timestamps=True)
    assert "rela" not in str(other.value)


def test_an_undone_exchange_is_saved_as_what_it_was(tmp_path: Path):
    model = make("t5")
    before, wanted = model.config.to_dict(), run(model)
    rela.replace_attention(model, "rela-g").undo()
    assert model.config.to_dict() == before
    model.save_pretrained(tmp_path)
    assert torch.equal(run(type(model).from_pretrained(tmp_path, attn_implementation="eager")), wanted)


@pytest.mark.parametrize(("name", "wanted"), [("llama", "implied"), ("nllb_moe", "boolean"), ("longt5", "additive")])
def test_masks_are_those_the_model_can_do_with(name: str, wanted: str):
    model = make(name)
    left = [part for part in model.modules() if type(part).__name__ == "LongT5LocalAttention"]
    assert masks_of([model], left) == {id(model.config): wanted}
