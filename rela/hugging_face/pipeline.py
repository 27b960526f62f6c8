"""A translation pipeline, which `transformers` has no more: `pipeline("rela-translation", model=FOLDER)`."""

from __future__ import annotations

from typing import Any

from transformers import Pipeline

from rela.decoding.length_limits import longest_translation

TASK = "rela-translation"
"""`transformers` refuses the name "translation" since version 5, even where somebody registers it."""


class TranslationPipeline(Pipeline):
    """Sentences to `{"translation_text": …}`; options of the call go to `generate`."""

    _pipeline_calls_generate = True
    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __call__(self, texts: str | list[str], **options: Any) -> list[Any]:
        """One dict for each text, or a list of them where `num_return_sequences` asks for several."""
        found = super().__call__(texts, **options)
        single = isinstance(texts, list) and all(len(translations) == 1 for translations in found)
        return [translations[0] for translations in found] if single else found

    def _sanitize_parameters(self, **options: Any) -> tuple[dict, dict, dict]:
        return {}, options, {}

    def preprocess(self, text: str) -> Any:
        return self.tokenizer(text, return_tensors="pt", truncation=True)

    def _forward(self, inputs: Any, **options: Any) -> dict[str, Any]:
        decode = (getattr(self.model.config, "experiment", None) or {}).get("decode", {})
        if decode and not options.keys() & {"max_length", "max_new_tokens"}:
            pieces = inputs["attention_mask"].sum(-1).max().item() - 1  # without </s>
            shortest = decode.get("min_length", 0)  # which older versions did not write
            given = decode["max_length_ratio"], decode["max_length_extra"], shortest
            most = self.model.config.max_position_embeddings - 1
            options["max_new_tokens"] = longest_translation(pieces, *given, most) + 1  # with </s>
        return {"ids": self.model.generate(**inputs, **options)}

    def postprocess(self, outputs: dict[str, Any]) -> list[dict[str, str]]:
        texts = self.tokenizer.batch_decode(outputs["ids"], skip_special_tokens=True)
        return [{"translation_text": text} for text in texts]
