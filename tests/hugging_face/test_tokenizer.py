"""The tokenizer of transformers is our subwords: the same ids, the same text, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_models import subwords, toy_pairs

pytest.importorskip("transformers")

from rela.hugging_face.tokenizer import RelaTokenizer

TEXTS = [
    *(text for pair in toy_pairs(10) for text in pair),
    "",
    "  two   spaces\t",
    "a</s>b <pad> <s>",
    "▁under_score",
    "☃ 犬",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> RelaTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    subwords().save(folder / "subwords.model")
    RelaTokenizer(folder / "subwords.model").save_pretrained(folder / "saved")
    return RelaTokenizer.from_pretrained(folder / "saved")


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_text_are_those_of_our_subwords(tokenizer: RelaTokenizer, text: str):
    ids = tokenizer(text)["input_ids"]
    assert ids == [*subwords().encode(text), 2]
    assert tokenizer.decode(ids, skip_special_tokens=True) == subwords().decode(ids)
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) == ids[:-1]


def test_batches_are_padded_and_special_tokens_known(tokenizer: RelaTokenizer):
    batch = tokenizer(TEXTS, text_target=TEXTS, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 0).all()
    assert [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id] == [
        0,
        1,
        2,
        3,
    ]
    assert len(tokenizer) == len(tokenizer.get_vocab()) == 300
    assert tokenizer.decode([1, 4, 2]).startswith("<s>")


def test_one_text_at_a_time(tokenizer: RelaTokenizer):
    with pytest.raises(ValueError, match="a pair of texts"):
        tokenizer("one", "two")
    assert tokenizer.get_special_tokens_mask([5, 6]) == [0, 0, 1]
    assert tokenizer.get_special_tokens_mask([5, 2, 0], already_has_special_tokens=True) == [0, 1, 1]


def test_a_damaged_file_is_named(tmp_path: Path):
    (tmp_path / "subwords.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"subwords\.model"):
        RelaTokenizer(tmp_path / "subwords.model")
