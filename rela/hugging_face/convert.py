"""A model folder of ours to one of `transformers`, and back; the logits stay the same."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rela.config import Config
from rela.data.subwords import Subwords
from rela.files import read_json, read_part, replacing_folder
from rela.hugging_face.registration import require_transformers
from rela.model.folder import (
    CONFIG,
    OURS,
    SUBWORDS,
    ModelFolderError,
    check_output_folder,
    find_model,
    load_folder,
    save_folder,
    unique_weights,
)

if TYPE_CHECKING:
    from transformers import GenerationConfig

    from rela.hugging_face.configuration import RelaConfig

CARD = "README.md"
THEIR_CONFIG = "config.json"
THEIRS = re.compile(
    r"(config|generation_config|tokenizer_config|special_tokens_map|added_tokens)\.json|subwords\.model|README\.md"
    r"|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"
)
"""The files of a converted model."""


def to_hugging_face(folder: str | Path, out: str | Path) -> Path:
    """The folder `out`, which `AutoModelForSeq2SeqLM.from_pretrained` loads, made from a model folder of ours."""
    require_transformers()
    from safetensors import SafetensorError

    from rela.hugging_face.configuration import RelaConfig
    from rela.hugging_face.model import RelaForConditionalGeneration
    from rela.hugging_face.tokenizer import RelaTokenizer

    folder, out = find_model(folder), Path(out)
    check_output_folder(out, folder, THEIR_CONFIG, THEIRS)
    if (out / THEIR_CONFIG).exists() and (kind := model_type(out)) != "rela":
        raise ModelFolderError(f"{out} holds a model of type {kind}; it is not replaced")
    ours, config, subwords = load_folder(folder)
    if not Subwords(subwords).is_joint:
        raise ModelFolderError(f"{folder} has separate vocabularies; the tokenizer of a converted model has one")
    model: Any = RelaForConditionalGeneration.from_rela(ours, RelaConfig.from_rela(config))
    model.generation_config = generation_config(config)
    tokenizer = RelaTokenizer(folder / SUBWORDS, model_max_length=config.model.max_length)
    out.parent.mkdir(parents=True, exist_ok=True)
    model.config.subwords_sha256 = hashlib.sha256(subwords).hexdigest()
    with replacing_folder(out) as fresh:
        try:
            model.save_pretrained(fresh)
        except SafetensorError as error:  # what a full disk comes as
            raise OSError(f"{out} could not be written: {error}") from None
        tokenizer.save_pretrained(fresh)
        for file in fresh.glob("*.safetensors"):
            shutil.copymode(fresh / THEIR_CONFIG, file)  # safetensors 0.8 lets the owner alone read it
        for card in (folder / CARD, out / CARD):
            if card.is_file():
                (fresh / CARD).write_bytes(read_part(card))
                break
    return out


def from_hugging_face(folder: str | Path, out: str | Path) -> Path:
    """The model folder `out` of ours, made from one that `transformers` saved."""
    require_transformers()
    folder, out = Path(folder), Path(out)
    check_output_folder(out, folder, CONFIG, re.compile(f"{OURS.pattern}|{re.escape(CARD)}"))
    kind = model_type(folder)
    if kind != "rela":
        raise ModelFolderError(
            f"{folder} holds a model of type {kind}; wanted rela, as written by rela convert --to hf"
        )
    if not (folder / SUBWORDS).is_file():
        raise ModelFolderError(f"{folder} has no {SUBWORDS}; wanted the tokenizer saved beside the model")
    subwords = Subwords.load(folder / SUBWORDS)
    model = load_whole(folder)
    check_subwords(folder, subwords, model.config)
    save_folder(out, model.config.to_rela(), unique_weights(model.to_rela()), subwords.model)
    if (folder / CARD).is_file():
        (out / CARD).write_bytes(read_part(folder / CARD))
    return out


def load_whole(folder: Path) -> Any:
    """The model of a folder of `transformers`, which by itself puts random numbers where a tensor is missing."""
    import torch
    from safetensors import SafetensorError
    from transformers.utils import logging

    from rela.hugging_face.model import RelaForConditionalGeneration

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its report of what is missing; ours is an error of one line
    try:
        model, report = RelaForConditionalGeneration.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise ModelFolderError(f"the weights of {folder} are damaged or truncated: {error}") from None
    finally:
        logging.set_verbosity(verbosity)
    for problem, names in report.items():
        if names:
            kind = problem.replace("_", " ").removesuffix(" keys")
            raise ModelFolderError(f"{folder} does not fit its config.json: {kind} {min(map(str, names))}")
    for name, tensor in model.state_dict().items():
        if not bool(tensor.isfinite().all()):
            raise ModelFolderError(f"{folder}: {name} holds values that are no finite numbers")
    return model


def check_subwords(folder: Path, subwords: Subwords, config: RelaConfig) -> None:
    """Refuse a subword model that is not the one of the weights."""
    path, size = folder / SUBWORDS, subwords.size
    if size != config.vocab_size:
        raise ModelFolderError(f"{path} has {size} subwords; the model wants {config.vocab_size}")
    if config.subwords_sha256 not in (None, subwords.sha256):
        raise ModelFolderError(f"{path} is not the subword model that the weights were trained with")


def model_type(folder: Path) -> str:
    """What config.json of a folder says the model is."""
    try:
        values = read_json(folder / THEIR_CONFIG)
    except OSError:
        raise ModelFolderError(f"{folder} has no config.json; wanted a folder of save_pretrained") from None
    except ValueError as error:
        raise ModelFolderError(f"{folder / THEIR_CONFIG} is no JSON: {error}") from None
    return str(values.get("model_type")) if isinstance(values, dict) else "unknown"


def generation_config(config: Config) -> GenerationConfig:
    """How `generate` searches: with the beam of `config.decode`, and without the tokens our search never writes.

    The length penalty of `transformers` is length^α where ours is ((5 + length) / 6)^α, so a beam's choice among
    translations of different lengths may differ. Greedy search is the same.
    """
    from transformers import GenerationConfig

    from rela.data.subwords import BOS, EOS, PAD, UNK

    return GenerationConfig(
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        forced_eos_token_id=EOS,
        suppress_tokens=[PAD, BOS, UNK],
        num_beams=config.decode.beam,
        length_penalty=config.decode.length_penalty if config.decode.beam > 1 else None,  # refused beside greedy search
        max_new_tokens=config.model.max_length,  # with </s>, which is not read
        min_new_tokens=config.decode.min_length or None,
        no_repeat_ngram_size=config.decode.no_repeat_ngram or None,
    )
