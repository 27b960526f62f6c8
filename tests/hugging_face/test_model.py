"""Our models inside `transformers`: the logits of our own, whatever the padding and the cache; losses and training."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

import rela
from rela.config import Config, ModelConfig
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer
from tests.attention.hugging_face_models import enable_checkpointing
from tests.tiny_models import subwords, tiny_translator, toy_pairs

transformers = pytest.importorskip("transformers")

from rela.hugging_face.configuration import RelaConfig  # noqa: E402
from rela.hugging_face.convert import generation_config  # noqa: E402
from rela.hugging_face.layers import Hidden  # noqa: E402
from rela.hugging_face.model import RelaForConditionalGeneration  # noqa: E402

PAIRS = toy_pairs(6)
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def wrapped(translator: Translator) -> Any:
    """The translator's model as one of transformers."""
    model = RelaForConditionalGeneration.from_rela(translator.model, RelaConfig.from_rela(translator.config))
    model.generation_config = generation_config(translator.config)
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    return wrapped(tiny_translator())


def padded(rows: list[list[int]], side: str = "right", value: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids [B, S] and their mask."""
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), value), torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def sources(side: str = "right") -> tuple[torch.Tensor, torch.Tensor]:
    return padded([[*subwords().encode(source), 2] for source, _ in PAIRS], side)


def labels() -> torch.Tensor:
    return padded([[*subwords().encode(target), 2] for _, target in PAIRS], value=-100)[0]


def log_probs(model: Any, side: str = "right") -> list[torch.Tensor]:
    """The log-probabilities of each target's ids and </s>."""
    ids, mask = sources(side)
    wanted = labels()
    with torch.no_grad():
        found = model(input_ids=ids, attention_mask=mask, labels=wanted).logits.log_softmax(-1)
    chosen = found.gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
    return [row[kept] for row, kept in zip(chosen, wanted != -100, strict=True)]


SHAPES: dict[str, dict[str, Any]] = {
    "rela-g": {"threshold": 0.1},
    "softmax": {"encoder_attention": "softmax", "decoder_attention": "softmax", "cross_attention": "softmax"},
    "mixed": {"encoder_attention": "entmax15", "cross_attention": "relu2+rms", "tied_embeddings": "target"},
    "pre-norm": {"norm_first": True, "tied_embeddings": "none", "threshold": "learned"},
}


def tiny(name: str) -> Translator:
    torch.manual_seed(3)
    sizes = {"vocabulary_size": 300, "width": 24, "heads": 2, "feed_forward": 32, "max_length": 120}
    shape = ModelConfig(**sizes, encoder_layers=2, decoder_layers=1, **SHAPES[name])
    transformer = Transformer(shape)
    with torch.no_grad():
        for parameter in transformer.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return Translator(transformer, subwords(), Config(model=shape), "cpu")


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_our_own_with_padding_on_either_side(name: str):
    translator = tiny(name)
    ours = [torch.tensor(scored.log_probs) for scored in translator.score(*map(list, zip(*PAIRS, strict=True)))]
    model = wrapped(translator)
    for side in ("right", "left"):
        for wanted, got in zip(ours, log_probs(model, side), strict=True):
            torch.testing.assert_close(got, wanted, **CLOSE)


def test_greedy_generation_is_our_greedy_search(model: Any):
    longest = 10
    ids, mask = sources()
    found = tiny_translator().translate_nbest(
        [source for source, _ in PAIRS], beam=1, max_length_ratio=1e-9, max_length_extra=longest
    )
    generated = model.generate(ids, attention_mask=mask, num_beams=1, max_new_tokens=longest + 1)
    for row, (best,) in zip(generated[:, 1:].tolist(), found, strict=True):
        assert tuple(row[: row.index(2)]) == best.tokens


@pytest.mark.parametrize("beam", [1, 3])
def test_every_cache_gives_the_same_translations(model: Any, beam: int):
    ids, mask = sources("left")
    options = {"attention_mask": mask, "num_beams": beam, "max_new_tokens": 5}
    plain = model.generate(ids, use_cache=False, **options)
    assert torch.equal(model.generate(ids, **options), plain)
    assert torch.equal(model.generate(ids, cache_implementation="static", **options), plain)


@pytest.mark.parametrize("static", [False, True])
def test_steps_after_a_prefix_with_padding_are_one_forward(model: Any, static: bool):
    ids, mask = sources()
    target, target_mask = padded([[1, *subwords().encode(t)[:3]] for _, t in PAIRS[:3]], "left")
    target_mask[0, 0] = 0
    asked = {"input_ids": ids[:3], "attention_mask": mask[:3]}
    with torch.no_grad():
        whole = model(**asked, decoder_input_ids=target, decoder_attention_mask=target_mask).logits
        kind = transformers.StaticCache(config=model.config, max_cache_len=9) if static else transformers.DynamicCache()
        cache = transformers.EncoderDecoderCache(kind, transformers.DynamicCache())
        steps = [
            model(
                **asked,
                decoder_input_ids=target[:, start:stop],
                decoder_attention_mask=target_mask[:, :stop],
                past_key_values=cache,
            ).logits
            for start, stop in ((0, 2), (2, 3), (3, 4))
        ]
    torch.testing.assert_close(torch.cat(steps, 1)[target_mask == 1], whole[target_mask == 1], **CLOSE)


def test_weights_and_states_on_request_are_those_of_each_layer_and_head(model: Any):
    ids, mask = sources()
    with torch.no_grad():
        out = model(ids, mask, labels=labels(), output_attentions=True, output_hidden_states=True)
    queries, keys = labels().size(1), ids.size(1)
    shapes = {
        "encoder_attentions": (keys, keys),
        "decoder_attentions": (queries, queries),
        "cross_attentions": (queries, keys),
    }
    for name, (t, s) in shapes.items():
        assert [tuple(weights.shape) for weights in out[name]] == [(6, 2, t, s)] * 2, name
        assert rela.sparsity_rate(out[name][0]).min() > 0
    assert not out.encoder_attentions[0].transpose(2, 3)[(mask == 0)[:, None].expand(-1, 2, -1)].any(), "padding"
    assert torch.equal(out.encoder_hidden_states[-1], out.encoder_last_hidden_state)
    assert len(out.decoder_hidden_states) == 3


def test_the_loss_is_the_mean_over_labels_or_over_the_items_of_the_step(model: Any):
    ids, mask = sources()
    with torch.no_grad():
        mean = model(ids, mask, labels=labels()).loss
        shared = model(ids, mask, labels=labels(), num_items_in_batch=1000).loss
    wanted = torch.cat(log_probs(model))
    assert mean.item() == pytest.approx(-wanted.mean().item(), rel=1e-5)
    assert shared.item() == pytest.approx(-wanted.sum().item() / 1000, rel=1e-5)


def test_a_sparsity_target_is_part_of_the_training_loss():
    config = RelaConfig(**SIZES, threshold="learned", target_sparsity=0.9, attention_dropout=0.0, dropout=0.0)
    model = RelaForConditionalGeneration(config).train()
    ids, mask = sources()
    trained = model(ids, mask, labels=labels()).loss
    plain = model.eval()(ids, mask, labels=labels()).loss
    assert trained > plain
    trained.backward()
    assert model.encoder.layers[0].attention.threshold.grad.any()


SIZES = {
    "vocab_size": 300,
    "hidden_size": 24,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_position_embeddings": 120,
}


@pytest.mark.parametrize("gain", [0.25, {"encoder": 0.1, "cross": 4.0}], ids=str)
def test_a_new_model_starts_as_ours_do(gain):
    torch.manual_seed(1)
    model = RelaForConditionalGeneration(RelaConfig(**SIZES, query_key_gain=gain))
    ours = Transformer(model.config.model_config)
    for (name, new), old in zip(model.to_rela().named_parameters(), ours.parameters(), strict=True):
        assert new.std().item() == pytest.approx(old.std().item(), rel=0.35, abs=1e-6), name
    assert model.output.weight is model.encoder.embedding.table.weight is model.decoder.embedding.table.weight


def test_gradient_checkpointing_leaves_the_gradients():
    gradients = []
    ids, mask = sources()
    for checkpointing in (False, True):
        torch.manual_seed(1)
        model = RelaForConditionalGeneration(RelaConfig(**SIZES, dropout=0.0, attention_dropout=0.0)).train()
        if checkpointing:
            enable_checkpointing(model, reentrant=False)
        model(ids, mask, labels=labels()).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(second, first)


@pytest.mark.filterwarnings("ignore::UserWarning:torch.utils.data")
def test_the_trainer_learns_a_few_sentences(tmp_path):
    """And evaluates by generation, from batches that its own collator pads."""
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

    from rela.hugging_face.tokenizer import RelaTokenizer

    subwords().save(tmp_path / "subwords.model")
    tokenizer = RelaTokenizer(tmp_path / "subwords.model")
    rows = [dict(tokenizer(source, text_target=target)) for source, target in PAIRS]
    torch.manual_seed(1)
    model = RelaForConditionalGeneration(RelaConfig(**SIZES, dropout=0.0, attention_dropout=0.0))
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
        max_steps=8,
        learning_rate=2e-2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        predict_with_generate=True,
        logging_steps=8,
        label_names=["labels"],
    )
    trainer = Seq2SeqTrainer(
        model, arguments, DataCollatorForSeq2Seq(tokenizer, model), train_dataset=rows, eval_dataset=rows
    )
    before = trainer.evaluate(max_new_tokens=3)["eval_loss"]
    trainer.train()
    after = trainer.evaluate(max_new_tokens=3)["eval_loss"]
    assert before == pytest.approx(math.log(300), rel=0.5)
    assert after < 0.8 * before
    assert len(trainer.predict(rows[:2], max_new_tokens=3).predictions) == 2


def test_configurations_come_back_and_are_checked():
    config = dataclasses.replace(tiny_translator().config)
    assert RelaConfig.from_rela(config).to_rela() == config
    assert RelaConfig(**RelaConfig.from_rela(config).to_dict()).to_rela() == config
    with pytest.raises(ValueError, match="heads is 3; wanted a divisor of width 512"):
        RelaConfig(num_attention_heads=3)


def test_wrong_inputs_are_named(model: Any):
    ids, mask = sources()
    with pytest.raises(ValueError, match="decoder_input_ids and labels are missing"):
        model(ids)
    with pytest.raises(ValueError, match=r"attention_mask has shape \[6, 3\]"):
        model(ids, mask[:, :3], labels=labels())
    with pytest.raises(ValueError, match="wanted at most 120"):
        model(torch.ones(1, 121, dtype=torch.long), labels=labels()[:1])


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_more_words_are_saved_and_loaded_or_refused(tied: str, tmp_path):
    """Where source and target have tables of their own, only one would be resized."""
    shape = {"hidden_size": 16, "num_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = RelaForConditionalGeneration(RelaConfig(vocab_size=20, **shape, tied_embeddings=tied)).eval()
    model.resize_token_embeddings(20)
    given = {"input_ids": torch.arange(4, 9)[None], "decoder_input_ids": torch.arange(1, 5)[None]}
    if tied != "all":
        with pytest.raises(ValueError, match=f'tied_embeddings are "{tied}".*wanted "all"'):
            model.resize_token_embeddings(23)
        with pytest.raises(ValueError, match="wanted"):
            model.resize_token_embeddings(pad_to_multiple_of=8)
        assert model(**given).logits.size(-1) == model.config.vocab_size == 20
        return
    model.resize_token_embeddings(23)
    logits = model(**given).logits
    assert logits.size(-1) == 23
    model.save_pretrained(tmp_path)
    assert torch.equal(RelaForConditionalGeneration.from_pretrained(tmp_path).eval()(**given).logits, logits)


def test_hidden_is_in_the_terms_of_the_module():
    assert Hidden(causal=True).arguments(False)["is_causal"]
