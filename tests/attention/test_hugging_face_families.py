"""Every family of Hugging Face models: no query sees what comes after it, and softmax of ours is the model's own.

With no cache, a dynamic and a static one; without padding, padded on the left and on the right.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rela
from tests.attention.hugging_face_models import (
    DECODERS,
    INDEXED,
    MORE_DECODERS,
    MORE_OTHERS,
    MORE_READERS,
    MORE_TRANSLATORS,
    OTHERS,
    READERS,
    REFUSED,
    TRANSLATORS,
    make,
)

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this release of transformers has no attention interface", allow_module_level=True)

T, MORE = 7, 3
"""Tokens of the prompt, and of what is decoded after it."""
IDS = torch.randint(2, 60, (2, T + MORE), generator=torch.Generator().manual_seed(1))
SOURCE = torch.randint(2, 60, (2, 9), generator=torch.Generator().manual_seed(2))
PADDINGS = ("none", "left", "right")
CACHES = ("none", "dynamic", "static")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def in_campaign(names: Iterable[str]) -> list[Any]:
    """Families that are tested in the campaign alone."""
    return [pytest.param(name, marks=pytest.mark.campaign) for name in names]


CAUSAL = [*DECODERS, *TRANSLATORS, *in_campaign([*MORE_DECODERS, *MORE_TRANSLATORS])]
pytestmark = pytest.mark.filterwarnings("ignore:rela.replace_attention", "ignore:.*torch.jit.script. is deprecated")


def real(padding: str, tokens: int) -> Tensor:
    """[2, tokens], False where the second sentence has two tokens of padding."""
    kept = torch.ones(2, tokens, dtype=torch.bool)
    if padding == "left":
        kept[1, :2] = False
    if padding == "right":
        kept[1, T - 2 : T] = False
    return kept


def cache_of(model: Any, cache: str) -> Any:
    """A cache that one forward fills, or None; that of an encoder-decoder also keeps what the encoder said."""
    if cache == "none":
        return None

    def one() -> Any:
        if cache == "dynamic":
            return transformers.DynamicCache(config=model.config.get_text_config(decoder=True))
        return transformers.StaticCache(config=model.config.get_text_config(decoder=True), max_cache_len=T + MORE + 2)

    return transformers.EncoderDecoderCache(one(), transformers.DynamicCache()) if is_translator(model) else one()


def is_translator(model: Any) -> bool:
    return model.config.is_encoder_decoder


def logits(
    model: Any, ids: Tensor, kept: Tensor | None, cache: Any = None, source_kept: Tensor | None = None
) -> Tensor:
    """The logits of `ids`; `kept` masks them together with what is in the cache already."""
    mask = None if kept is None else kept.long()
    options: dict[str, Any] = {"past_key_values": cache, "use_cache": cache is not None}
    if not is_translator(model):
        return model(input_ids=ids, attention_mask=mask, **options).logits
    options |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    if isinstance(model, transformers.WhisperForConditionalGeneration):
        features = torch.randn(2, 4, 18, generator=torch.Generator().manual_seed(3))
        return model(input_features=features, **options).logits
    source_mask = None if source_kept is None else source_kept.long()
    return model(input_ids=SOURCE, attention_mask=source_mask, **options).logits


def situations(model: Any) -> dict[str, Tensor]:
    """The logits of the prompt at its real tokens, and after it of the tokens decoded step by step."""
    found = {}
    for padding in PADDINGS:
        kept = real(padding, T + MORE)
        source_kept = real(padding, 9)
        for cache_name in CACHES:
            prompt = None if padding == "none" and cache_name != "static" else kept[:, :T]
            for given in (prompt, None) if padding == "none" else (prompt,):
                cache = cache_of(model, cache_name)
                key = f"{padding} {cache_name} {'mask' if given is not None else 'no mask'}"
                out = logits(model, IDS[:, :T], given, cache, source_kept)
                found[key] = out[kept[:, :T]]
                if cache is None or padding == "right":
                    continue
                for t in range(T, T + MORE):
                    step_mask = None if given is None else kept[:, : t + 1]
                    found[f"{key} {t}"] = logits(model, IDS[:, t : t + 1], step_mask, cache, source_kept)
    return found


@pytest.mark.parametrize("name", [*CAUSAL, "deepseek_v32", *in_campaign(sorted(INDEXED.keys() - {"deepseek_v32"}))])
def test_our_softmax_is_the_model_s_own_in_every_situation(name: str):
    model = make(name)
    with torch.no_grad():
        before = situations(model)
        rela.replace_attention(model, "softmax")
        after = situations(model)
    for situation, wanted in before.items():
        torch.testing.assert_close(after[situation], wanted, **CLOSE, msg=lambda text, s=situation: f"{s}: {text}")


@pytest.mark.parametrize("name", [*READERS, *in_campaign(MORE_READERS)])
def test_our_softmax_is_an_encoder_s_own(name: str):
    model = make(name)
    for padding in PADDINGS:
        kept = real(padding, T)
        with torch.no_grad():
            before = model(input_ids=IDS[:, :T], attention_mask=kept.long())[0][kept]
            replaced = rela.replace_attention(model, "softmax")
            torch.testing.assert_close(
                model(input_ids=IDS[:, :T], attention_mask=kept.long())[0][kept], before, **CLOSE
            )
            replaced.undo()


@pytest.mark.parametrize("name", OTHERS)
def test_our_softmax_is_the_own_of_models_of_pictures(name: str):
    model = make(name)
    inputs: dict[str, Tensor] = {"pixel_values": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))}
    if name != "vit":
        inputs |= {"input_ids": IDS[:, :T], "attention_mask": real("right", T).long()}
    with torch.no_grad():
        before = model(**inputs)
        rela.replace_attention(model, "softmax")
        after = model(**inputs)
    names = [part for part in ("last_hidden_state", "text_embeds", "image_embeds") if part in before]
    assert names
    for part in names:
        # GIT's text follows the tokens of its picture: its padding is at the end
        shown = slice(None) if name != "git" else (1, slice(-2))
        torch.testing.assert_close(after[part][shown], before[part][shown], **CLOSE)


@pytest.mark.parametrize("name", CAUSAL)
def test_nothing_before_the_last_token_moves_with_it(name: str):
    model = make(name)
    rela.replace_attention(model, "rela-g")
    has_experts = any("expert" in part for part, _ in model.named_modules())
    other = IDS[:, :T].clone()
    other[:, -1] = (other[:, -1] - 1) % 58 + 2
    for padding in ("none", "left"):
        for cache in CACHES:
            for kept in (real(padding, T), None) if padding == "none" else (real(padding, T),):
                with torch.no_grad():
                    first, second = (logits(model, ids, kept, cache_of(model, cache)) for ids in (IDS[:, :T], other))
                shown = slice(None) if kept is None else kept[:, :-1]
                moved = (first - second).abs()
                # experts multiply the tokens that chose them together: another token may change a sum's last bit
                limit = 1e-6 if has_experts else 0.0
                still = moved[:, :-1][shown].max() <= limit
                assert still, f"{padding} {cache} {kept is not None}: {moved.amax((0, 2))}"
                assert moved[:, -1].max() > 1e-4, "the last token is seen by itself"


@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
@pytest.mark.parametrize("name", CAUSAL)
def test_prefill_and_steps_are_one_forward(name: str, kind: str):
    model = make(name)
    rela.replace_attention(model, kind)
    for padding in ("none", "left"):
        kept = real(padding, T + MORE)
        with torch.no_grad():
            whole = logits(model, IDS, kept)
            for cache_name in ("dynamic", "static"):
                cache = cache_of(model, cache_name)
                parts = [logits(model, IDS[:, :T], kept[:, :T], cache)]
                parts += [logits(model, IDS[:, t : t + 1], kept[:, : t + 1], cache) for t in range(T, T + MORE)]
                torch.testing.assert_close(torch.cat(parts, 1)[kept], whole[kept], **CLOSE)


@pytest.mark.parametrize("name", in_campaign([*MORE_DECODERS, *MORE_TRANSLATORS, *MORE_READERS]))
def test_more_families_train_generate_save_load_and_go_back(name: str, tmp_path: Path):
    def answer(model: Any) -> Tensor:
        if name in MORE_READERS:
            return model(input_ids=IDS[:, :T], attention_mask=real("right", T).long())[0]
        return logits(model, IDS[:, :T], real("left", T))

    model, untouched = make(name), make(name)
    replaced = rela.replace_attention(model, "rela-g")
    assert not replaced.left
    model.train()
    answer(model).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in replaced.added)
    model.eval()
    with torch.no_grad():
        model.save_pretrained(tmp_path)
        rela.register_transformers()
        loaded = type(model).from_pretrained(tmp_path).eval()
        torch.testing.assert_close(answer(loaded), answer(model))
        assert set(loaded.state_dict()) == set(model.state_dict())
    if name not in MORE_READERS:
        prompt = SOURCE if is_translator(model) else IDS[:, :5]
        options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
        static = model.generate(prompt, **options, cache_implementation="static")
        assert torch.equal(static, model.generate(prompt, **options, use_cache=False))
    replaced.undo()
    with torch.no_grad():
        torch.testing.assert_close(answer(model), answer(untouched))


@pytest.mark.parametrize("name", in_campaign(MORE_OTHERS))
def test_more_models_of_pictures_and_sound(name: str, tmp_path: Path):
    """Our softmax is the model's own; as ReLA it answers otherwise, and is saved as it is."""
    generator = torch.Generator().manual_seed(3)
    config = MORE_OTHERS[name][1]
    if "conv_dim" in config:
        inputs = {"input_values": torch.randn(2, 400, generator=generator)}
    else:
        size = (2, 2, 3, 8, 8) if "num_frames" in config else (2, 3, 8, 8)
        inputs = {"pixel_values": torch.randn(*size, generator=generator)}
    if "text_config" in config:
        inputs["input_ids"] = IDS[:, :T]

    def answers(model: Any) -> list[Tensor]:
        found = model(**inputs).to_tuple()
        return [x for x in found if isinstance(x, Tensor) and x.is_floating_point()]

    model = make(name)
    with torch.no_grad():
        before = answers(model)
        replaced = rela.replace_attention(model, "softmax")
        assert not replaced.left
        torch.testing.assert_close(answers(model), before, **CLOSE)
        replaced.undo()
        rela.replace_attention(model, "rela-g")
        after = answers(model)
        assert any((one - other).abs().max() > 1e-3 for one, other in zip(after, before, strict=True))
        model.save_pretrained(tmp_path)
        rela.register_transformers()
        torch.testing.assert_close(answers(type(model).from_pretrained(tmp_path).eval()), after)


@pytest.mark.parametrize("name", in_campaign(REFUSED))
def test_what_cannot_be_exchanged_is_refused_at_once(name: str):
    model = make(name)
    before = {part: id(module) for part, module in model.named_modules()}
    with pytest.raises(ValueError, match=r"to replace|has no place for"):
        rela.replace_attention(model, "rela-g")
    assert {part: id(module) for part, module in model.named_modules()} == before
