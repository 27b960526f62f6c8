"""RelaTokenizer: our subwords as a tokenizer of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from rela.data.subwords import BOS, EOS, PAD, UNK, WORD_START, Subwords
from rela.model.folder import SUBWORDS


class RelaTokenizer(PreTrainedTokenizer):
    """Text to subword ids and </s>, of both languages, and back, as `rela.data.subwords` does it.

    Text that reads like a special token is text here: "</s>" becomes its characters.
    """

    vocab_files_names = {"vocab_file": SUBWORDS}  # noqa: RUF012 (as every class of theirs)
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, vocab_file: str | Path, **options: Any) -> None:
        self.subwords = Subwords.load(vocab_file)
        named = zip(("pad_token", "bos_token", "eos_token", "unk_token"), (PAD, BOS, EOS, UNK), strict=True)
        special = {name: self.subwords.pieces([index])[0] for name, index in named}
        super().__init__(**{**special, "split_special_tokens": True, **options})

    @property
    def vocab_size(self) -> int:
        return self.subwords.size

    def get_vocab(self) -> dict[str, int]:
        pieces = self.subwords.pieces(range(self.subwords.size))
        return {**{piece: index for index, piece in enumerate(pieces)}, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **options: Any) -> list[str]:
        return self.subwords.pieces(self.subwords.encode(text))

    def _convert_token_to_id(self, token: str) -> int:
        return int(self.subwords.processor.piece_to_id(token))

    def _convert_id_to_token(self, index: int) -> str:
        return self.subwords.pieces([index])[0]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens).replace(WORD_START, " ").strip()

    def _decode(self, token_ids: int | list[int], skip_special_tokens: bool = False, **options: Any) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        if skip_special_tokens and all(index < self.subwords.size for index in ids):
            return self.subwords.decode(ids)  # <unk> stands for text, and shows as ⁇
        text: str = super()._decode(ids, skip_special_tokens=skip_special_tokens, **options)
        return text

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        if token_ids_1 is not None:
            raise ValueError("a pair of texts was given; wanted one (text_target is for the translation)")
        return [*token_ids_0, EOS]

    def get_special_tokens_mask(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        if already_has_special_tokens:
            return [int(index in (PAD, BOS, EOS)) for index in token_ids_0]
        return [*[0] * len(token_ids_0), 1]

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        path = Path(save_directory) / f"{filename_prefix + '-' if filename_prefix else ''}{SUBWORDS}"
        self.subwords.save(path)
        return (str(path),)
