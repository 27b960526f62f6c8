"""Attention inside Hugging Face models: softmax of ours is theirs, ReLA is what the equations say, and it trains."""

from __future__ import annotations

import pytest
import torch

import rela
from rela.attention.hugging_face import ATTACHED, attentions
from tests.attention.hugging_face_models import GROUPED, SPECIAL, STACK, enable_checkpointing
from tests.attention.hugging_face_models import make as family

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this release of transformers has no attention interface", allow_module_level=True)

IDS = torch.randint(2, 60, (2, 9), generator=torch.Generator().manual_seed(1))
REAL = torch.arange(9) < torch.tensor([[9], [6]])


def make(name: str) -> torch.nn.Module:
    """A tiny model with random weights; nothing is downloaded."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    if name == "bert":
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
        return transformers.BertModel(transformers.BertConfig(**shape, **sizes)).eval()
    if name == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, **sizes)).eval()
    if name == "llama":  # grouped queries, and heads whose sizes do not add up to the model's
        shape = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "intermediate_size": 32,
        }
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **sizes)).eval()
    if name == "t5":  # adds a bias to its scores
        shape = {"d_model": 32, "d_kv": 12, "d_ff": 32, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
        return transformers.T5ForConditionalGeneration(transformers.T5Config(**shape, **sizes)).eval()
    if name == "pair":  # made of two others, whose attentions keep the configurations they had alone
        shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
        writer = transformers.BertConfig(**shape, **sizes, is_decoder=True, add_cross_attention=True)
        reader = transformers.BertModel(transformers.BertConfig(**shape, **sizes))
        return transformers.EncoderDecoderModel(encoder=reader, decoder=transformers.BertLMHeadModel(writer)).eval()
    shape = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
    }
    return transformers.MarianMTModel(transformers.MarianConfig(**shape, **sizes)).eval()


def run(model: torch.nn.Module, **options) -> torch.Tensor:
    if model.config.is_encoder_decoder:
        return model(input_ids=IDS, attention_mask=REAL.long(), decoder_input_ids=IDS[:, :5], **options)[0]
    return model(input_ids=IDS, attention_mask=REAL.long(), **options)[0][REAL]


@pytest.mark.parametrize(
    ("name", "count"), [("bert", 2), ("gpt2", 2), ("llama", 2), ("marian", 5), ("t5", 6), ("pair", 3)]
)
def test_our_softmax_is_theirs_and_rela_is_not(name, count):
    model = make(name)
    with torch.no_grad():
        before = run(model)
        replaced = rela.replace_attention(model, kind="softmax")
        assert len(replaced.names) == count
        assert replaced.what.endswith("Attention")
        torch.testing.assert_close(run(model), before, atol=1e-5, rtol=1e-5)
        rela.replace_attention(model, kind="rela-g")
        assert (run(model) - before).abs().max() > 1e-3


def test_the_norm_is_over_the_merged_heads_of_the_context():
    model = make("bert")
    rela.replace_attention(model, kind="relu-rms")
    attention = attentions(model)["encoder.layer.0.attention.self"]
    x = torch.randn(1, 5, 32)
    with torch.no_grad():
        q, k, v = (getattr(attention, part)(x).view(1, 5, 4, 8).transpose(1, 2) for part in ("query", "key", "value"))
        wanted = rela.RMSNorm(32)(rela.attend(q, k, v, kind="relu").transpose(1, 2).flatten(2))
        torch.testing.assert_close(attention(x)[0], wanted)


def test_gates_and_gains_are_trained_and_saved():
    model = make("marian").train()
    names = rela.replace_attention(model, kind="rela-g").names
    run(model).square().mean().backward()
    for name in names:
        for part in ("gain", "gate"):
            gradient = model.get_parameter(f"{name}.{ATTACHED}.norm.{part}").grad
            assert gradient is not None
            assert gradient.isfinite().all()
    assert f"{names[0]}.{ATTACHED}.norm.gate" in model.state_dict()


def test_what_is_attached_lies_where_its_attention_does():
    """As in a model whose layers are spread over devices, or kept in several types."""
    model = make("llama")
    model.model.layers[0].to(torch.bfloat16)
    model.model.layers[1].to("meta")
    rela.replace_attention(model, kind="rela-g", threshold="learned")
    found = [dict(attention.named_parameters()) for attention in attentions(model).values()]
    assert [len(parameters) for parameters in found] == [4 + 3, 4 + 3]  # projections; gain, gate and threshold
    for parameters, device, dtype in zip(found, ("cpu", "meta"), (torch.bfloat16, torch.float32), strict=True):
        assert {parameter.device.type for parameter in parameters.values()} == {device}
        assert {parameter.dtype for parameter in parameters.values()} == {dtype}


def test_the_type_is_that_of_floating_weights():
    model = make("bert").to(torch.float16)
    projection = attentions(model)["encoder.layer.0.attention.self"].query
    projection.weight = torch.nn.Parameter(
        projection.weight.to(torch.int8), requires_grad=False
    )  # as quantised ones are
    rela.replace_attention(model, kind="rela-g")
    added = [parameter for name, parameter in model.named_parameters() if f"{ATTACHED}." in name]
    assert len(added) == 2 * 2
    assert {parameter.dtype for parameter in added} == {torch.float16}


@pytest.mark.parametrize("name", ["gpt2", "llama", "marian", "t5"])
def test_steps_with_a_cache_are_the_steps_without(name):
    model = make(name)
    rela.replace_attention(model, kind="rela-g")
    options = {"attention_mask": REAL.long(), "max_new_tokens": 5, "do_sample": False, "num_beams": 1}
    with torch.no_grad():
        with_cache, without = (model.generate(IDS, use_cache=use, **options) for use in (True, False))
    assert torch.equal(with_cache, without)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_generation_by_a_static_cache_is_that_by_a_dynamic_one(name: str):
    """With padding on the left, as generation wants it."""
    model = make(name)
    rela.replace_attention(model, kind="rela-g")
    options = {"attention_mask": REAL.flip(1).long(), "max_new_tokens": 4, "do_sample": False}
    with torch.no_grad():
        static, dynamic = (model.generate(IDS, cache_implementation=c, **options) for c in ("static", "dynamic"))
    assert torch.equal(static, dynamic)


@pytest.mark.filterwarnings("ignore:rela.replace_attention")
@pytest.mark.parametrize("kind", ["rela-g-leaky", "rela-g-gelu", "rela-g"])
@pytest.mark.parametrize("name", ["marian", "pegasus_x", "longt5"])
def test_padding_is_seen_by_no_kind(name: str, kind: str):
    """Also where attentions that were left want a mask that is added to the scores, as PEGASUS-X's do."""
    model = make(name) if name == "marian" else family(name)
    rela.replace_attention(model, kind)
    hidden, shown = (torch.where(changed, 61 - IDS, IDS) for changed in (~REAL, REAL))
    with torch.no_grad():
        first, second, third = (
            model(input_ids=ids, attention_mask=REAL.long(), decoder_input_ids=IDS[:, :5])[0]
            for ids in (IDS, hidden, shown)
        )
    torch.testing.assert_close(second, first, atol=1e-5, rtol=1e-5)
    assert (third - first).abs().amax((1, 2)).min() > 1e-4, "what is not padding is seen, in the padded sentence too"


def test_a_threshold_reaches_the_scores():
    model = make("bert")
    rela.replace_attention(model, kind="relu", threshold=1e6)
    attention = attentions(model)["encoder.layer.1.attention.self"]
    with torch.no_grad():
        assert not attention(torch.randn(1, 5, 32))[0].any(), "nobody looks at anything"


def test_a_learned_threshold_starts_where_rela_is_and_moves():
    plain, learned = make("llama"), make("llama")
    rela.replace_attention(plain, kind="relu-rms")
    names = rela.replace_attention(learned, kind="relu-rms", threshold="learned").names
    torch.testing.assert_close(run(learned), run(plain))
    run(learned).square().mean().backward()
    assert all(learned.get_parameter(f"{name}.{ATTACHED}.threshold").grad.any() for name in names)


def test_weights_are_given_to_those_who_ask():
    model = make("bert")
    rela.replace_attention(model, kind="rela-g")
    weights = model(input_ids=IDS, attention_mask=REAL.long(), output_attentions=True).attentions
    assert [tuple(layer.shape) for layer in weights] == [(2, 4, 9, 9)] * 2
    assert not weights[0][1, :, :, 6:].any(), "padding is looked at by nobody"
    assert 0.2 < rela.sparsity_rate(weights[0]).mean() < 1


@pytest.mark.parametrize("name", ["gpt2", "opt", "stablelm", "siglip", "llama"])
def test_weights_are_recorded_where_a_model_does_not_say_that_they_are_asked_for(name: str):
    model = family(name)
    pixels = {"pixel_values": torch.ones(2, 3, 8, 8)} if name == "siglip" else {}

    def weights() -> tuple[torch.Tensor, ...]:
        out = model(input_ids=IDS, **pixels, output_attentions=True)
        return out.text_model_output.attentions if name == "siglip" else out.attentions

    wanted = weights()
    rela.replace_attention(model, "softmax")
    assert len(wanted) == 2
    for one, other in zip(weights(), wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["t5", "marian"])
def test_weights_are_recorded_of_what_is_left_too(name: str):
    model = family(name)
    asked = {"input_ids": IDS, "attention_mask": REAL.long(), "decoder_input_ids": IDS, "output_attentions": True}
    names = "encoder_attentions", "decoder_attentions", "cross_attentions"
    wanted = model(**asked)
    rela.replace_attention(model.get_encoder(), "softmax")
    found = model(**asked)
    for key in names:
        assert len(found[key]) == len(wanted[key]) > 0
        for one, other in zip(found[key], wanted[key], strict=True):
            torch.testing.assert_close(one, other)


def test_what_cannot_be_is_refused_and_leaves_the_model_as_it_was():
    model = make("bert")
    before = model.config._attn_implementation
    with pytest.raises(ValueError, match="kind is 'rela-x'"):
        rela.replace_attention(model, kind="rela-x")
    with pytest.raises(ValueError, match="threshold is learned for softmax"):
        rela.replace_attention(model, kind="softmax", threshold="learned")
    with pytest.raises(ValueError, match="backend is 'cuda'"):
        rela.replace_attention(model, backend="cuda")
    with pytest.raises(TypeError, match="num_kv_heads"):
        rela.replace_attention(model, num_kv_heads=2)
    assert model.config._attn_implementation == before
    assert not any(name.endswith(ATTACHED) for name, _ in model.named_modules())


def test_layers_alone_are_refused_with_advice():
    layer = make("llama").model.layers[0]
    with pytest.raises(ValueError, match="to replace; wanted a model of transformers around its layers"):
        rela.replace_attention(layer)


def test_where_one_part_refuses_all_stay_as_they_were(monkeypatch):
    model = make("t5")

    def refuse(name):
        raise ValueError(f"no {name} here")

    with torch.no_grad():
        before = run(model)
        monkeypatch.setattr(model.decoder, "set_attn_implementation", refuse)
        with pytest.raises(ValueError, match="no rela here"):
            rela.replace_attention(model)
        assert torch.equal(run(model), before)


@pytest.mark.parametrize("name", ["siglip", "wrapped"])
def test_both_kinds_of_attention_in_one_model_are_exchanged(name: str):
    """Its own torch.nn.MultiheadAttention, and those of the interface; in a module around a model too."""
    if name == "siglip":
        model = family("siglip")
        wanted = {
            "text_model.encoder.layers.0.self_attn",
            "text_model.encoder.layers.1.self_attn",
            "vision_model.encoder.layers.0.self_attn",
            "vision_model.head.attention",
        }
    else:
        model = torch.nn.ModuleDict({"reader": family("vit"), "pool": torch.nn.MultiheadAttention(32, 4)})
        wanted = {"reader.layers.0.attention", "pool"}
    replaced = rela.replace_attention(model, "rela-g")
    assert set(replaced.names) == wanted
    assert not replaced.left
    assert not any(isinstance(part, torch.nn.MultiheadAttention) for part in model.modules())
    assert len(replaced.added) == 2 * len(wanted)
    replaced.undo()
    assert not any(name.endswith(ATTACHED) for name, _ in model.named_modules())
    assert any(isinstance(part, torch.nn.MultiheadAttention) for part in model.modules())


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("git", ["encoder.layer.0.attention", "encoder.layer.1.attention"]),
        ("longt5", ["encoder.block.0.layer.0", "encoder.block.1.layer.0"]),
        ("pegasus_x", ["model.encoder.layers.0.self_attn"]),
    ],
)
def test_what_is_left_is_named_with_the_reason(name: str, left: list[str]):
    with pytest.warns(
        UserWarning, match=f"rela.replace_attention left {left[0]}.* does not use the attention interf"
    ) as caught:
        replaced = rela.replace_attention(family(name), "rela-g")
    assert caught[0].filename == __file__, "the line that asked for the exchange"
    assert list(replaced.left) == left
    assert all("does not use the attention interface" in reason for reason in replaced.left.values())
    assert f"left as they were: {left[0]} (" in str(replaced)


@pytest.mark.parametrize(("name", "reason"), [("Gemma2", "attn_logit_softcapping"), ("GptOss", "sinks")])
def test_more_than_softmax_is_refused_at_once(name: str, reason: str):
    config = getattr(transformers, f"{name}Config")(**GROUPED, **SPECIAL, head_dim=8, num_local_experts=4)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    before, written = run(model), model.config.to_dict()
    with pytest.raises(ValueError, match=f"model.layers.0.self_attn is a {name}Attention with {reason}"):
        rela.replace_attention(model)
    assert model.config.to_dict() == written
    assert torch.equal(run(model), before)


def test_a_model_reaches_its_target_sparsity():
    model = make("bert").train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    replaced = rela.replace_attention(model, "rela-g", threshold="learned", target_sparsity=0.8)
    thresholds = [model.get_parameter(f"{name}.{ATTACHED}.threshold") for name in replaced.names]
    optimiser = torch.optim.SGD(thresholds, lr=1e-3)
    for _ in range(100):
        run(model)
        optimiser.zero_grad()
        rela.collect_sparsity_penalty(model).backward()
        optimiser.step()
    options = {"input_ids": IDS, "attention_mask": REAL.long(), "output_attentions": True}
    for weights in model.eval()(**options).attentions:
        rate = rela.sparsity_rate(weights, REAL[:, None, None])
        assert rate.tolist() == pytest.approx([0.8] * 4, abs=0.05)
    with pytest.raises(ValueError, match='target_sparsity is set; wanted threshold="learned"'):
        rela.replace_attention(model, "rela-g", target_sparsity=0.8)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_leaves_penalty_and_gradients(reentrant: bool):
    gradients = []
    for checkpointing in (False, True):
        model = make("llama").train()
        rela.replace_attention(model, "rela-g", threshold="learned", target_sparsity=0.8)
        if checkpointing:
            enable_checkpointing(model, reentrant)
            model.enable_input_require_grads()
        loss = run(model, use_cache=False).square().mean() + rela.collect_sparsity_penalty(model)
        loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=lambda text, n=name: f"{n}: {text}")
    assert all(gradient.any() for name, gradient in gradients[0].items() if name.endswith("threshold"))


def test_undo_puts_the_earlier_attention_back():
    model = make("t5")
    with torch.no_grad():
        before = run(model)
        first = rela.replace_attention(model, "rela-g")
        between = run(model)
        second = rela.replace_attention(model, "relu-rms")
        assert not torch.equal(run(model), between)
        assert second.undo() is model
        assert torch.equal(run(model), between)
        assert first.undo() is model
        assert torch.equal(run(model), before)


def test_exchanges_are_undone_the_last_first_and_once():
    model = make("gpt2")
    with torch.no_grad():
        before = model(IDS).logits
        first = rela.replace_attention(model, "relu-rms")
        second = rela.replace_attention(model, "rela-g")
        with pytest.raises(ValueError, match="was exchanged again; wanted the later exchange to be undone first"):
            first.undo()
        second.undo()
        second.undo()  # which has nothing left to do
        first.undo()
        torch.testing.assert_close(model(IDS).logits, before)


@pytest.mark.parametrize("kind", ["rela-g", "rela-g-leaky", "rela-g-gelu"])
def test_padding_that_a_model_hides_by_a_finite_number(kind: str):
    """MarkupLM adds -10,000, of which leaky relu would make a weight of -100."""
    model = family("markuplm")
    rela.replace_attention(model, kind)
    ids = torch.arange(2, 16).view(2, 7)
    kept = torch.ones_like(ids)
    kept[1, 4:] = 0
    with torch.no_grad():
        first = model(input_ids=ids, attention_mask=kept)[0]
        second = model(input_ids=torch.where(kept == 0, 20, ids), attention_mask=kept)[0]
    assert torch.equal(first[kept == 1], second[kept == 1])


def test_a_causal_mask_is_made_where_attentions_do_not_tell():
    """PaliGemma without token types: its attentions say they are not causal, its mask is."""
    text = {**GROUPED, "model_type": "gemma", "head_dim": 8, "vocab_size": 60}
    vision = {**STACK, "model_type": "siglip_vision_model", "image_size": 8, "patch_size": 4}
    config = transformers.PaliGemmaConfig(text_config=text, vision_config=vision, image_token_id=59, projection_dim=32)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.PaliGemmaModel(config).eval()
    own = model(input_ids=IDS)[0]
    rela.replace_attention(model, "softmax")
    torch.testing.assert_close(model(input_ids=IDS)[0], own)


def test_windows_that_a_model_hides_by_a_finite_number():
    """Swin adds -100 and a learned bias: a shifted window looks at no part of the picture that wrapped around."""
    model = family("swin", image_size=16, depths=[2], window_size=4)
    rela.replace_attention(model, "leaky_relu")
    with torch.no_grad():
        weights = model(torch.ones(1, 3, 16, 16), output_attentions=True).attentions[-1]
    assert (weights == 0).any()
    assert weights.min() > -0.5


@pytest.mark.skipif(
    not hasattr(transformers, "Gemma4ForCausalLM"), reason="this release of transformers has no Gemma 4"
)
@pytest.mark.parametrize("kind", ["softmax", "rela-g"])
def test_a_model_may_drop_queries_after_its_mask_was_made(kind: str):
    """Gemma 4 computes no more than the logits that are asked for in layers that share the keys of earlier ones."""
    layers = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
    sizes = {**GROUPED, **SPECIAL, **layers, "num_hidden_layers": 4, "sliding_window": 4}
    per_layer = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 60}
    torch.manual_seed(0)
    config = transformers.Gemma4TextConfig(**sizes, **per_layer, attn_implementation="eager")
    model = transformers.Gemma4ForCausalLM(config).eval()
    own = model(IDS, logits_to_keep=3).logits
    rela.replace_attention(model, kind)
    kept, every = model(IDS, logits_to_keep=3).logits, model(IDS).logits
    torch.testing.assert_close(kept, every[:, -3:])
    if kind == "softmax":
        torch.testing.assert_close(kept, own, rtol=1e-4, atol=1e-5)
    options = {"max_new_tokens": 4, "do_sample": False}
    looked_up = model.generate(IDS[:1].repeat(1, 2), prompt_lookup_num_tokens=2, **options)
    assert torch.equal(looked_up, model.generate(IDS[:1].repeat(1, 2), use_cache=False, **options))
