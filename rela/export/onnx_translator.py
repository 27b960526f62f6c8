"""Translation with onnxruntime alone: a folder that `rela export --to onnx` wrote in, text out. PyTorch is not needed.

python -m rela.export.onnx_translator FOLDER < text.en
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rela.data.subwords import BOS, EOS, PAD, UNK, Subwords
from rela.decoding.length_limits import longest_translation
from rela.files import checksum, read_json

SETTINGS, SUBWORDS = "export.json", "subwords.model"
ENCODER, DECODER_STEP = "encoder", "decoder_step"
MEMORY, CACHE = ("memory_keys", "memory_values"), ("cache_keys", "cache_values")
"""Inputs of the decoder step's graph by name: what the encoder gave, and the positions decoded so far."""
CONSTRAINTS = {"min_length": 0, "no_repeat_ngram": 0}
"""Settings that older versions did not write, and what they mean where they are missing."""
NUMBERS = ("max_length", "max_length_ratio", "max_length_extra", *CONSTRAINTS)
WINDOW = 512
"""Lines that are read, sorted by length and translated together."""


class OnnxTranslator:
    """An exported model: greedy translation, the same as `rela translate --beam 1` of the model folder.

    model = OnnxTranslator("exported")
    model.translate(["A dog is sleeping ."])
    """

    def __init__(self, folder: str | Path, threads: int = 0, batch: int = 32) -> None:
        """`threads` of onnxruntime, 0 for as many as there are cores; `batch` sentences are translated together."""
        folder = Path(folder)
        self.settings = read_settings(folder, "onnx")
        self.subwords = Subwords.load(folder / SUBWORDS)
        self.encoder = open_session(folder / f"{ENCODER}.onnx", threads)
        self.decoder_step = open_session(folder / f"{DECODER_STEP}.onnx", threads)
        self.batch = batch

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """The greedy translation of each sentence."""
        if isinstance(sentences, str):
            raise TypeError("sentences is one str; wanted a list of sentences, such as [sentences]")
        sources = [self.encode(sentence, line) for line, sentence in enumerate(sentences, 1)]
        translations: list[str] = [""] * len(sources)
        order = sorted((i for i in range(len(sources)) if sources[i]), key=lambda i: -len(sources[i]))
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            for i, ids in zip(chosen, self.search([sources[i] for i in chosen]), strict=True):
                translations[i] = self.subwords.decode(ids)
        return translations

    def encode(self, sentence: str, line: int) -> list[int]:
        """Subword ids, cut with a warning where there are more than the model has positions for."""
        ids, limit = self.subwords.source.encode(sentence), self.settings["max_length"] - 1
        if len(ids) > limit:
            message = f"line {line} has {len(ids)} subwords; only the first {limit} are translated"
            warnings.warn(message, stacklevel=3)
        return ids[:limit]

    def limit(self, source: list[int]) -> int:
        """How many subwords the translation of a source may have."""
        settings = self.settings
        ratio, extra = settings["max_length_ratio"], settings["max_length_extra"]
        shortest, most = int(settings["min_length"]), int(settings["max_length"]) - 1
        return longest_translation(len(source), ratio, extra, shortest, most)

    def forbidden(self, tokens: list[int]) -> list[int]:
        """What may not follow the tokens of a translation, by the model's min_length and no_repeat_ngram."""
        never, n = [EOS] if len(tokens) < self.settings["min_length"] else [], self.settings["no_repeat_ngram"]
        ngrams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)] if n else []
        return never + [ngram[-1] for ngram in ngrams if ngram[:-1] == tokens[len(tokens) - n + 1 :]]

    def search(self, sources: list[list[int]]) -> list[list[int]]:
        """The most probable next token, again and again, of each source; sentences that are finished leave."""
        found: list[list[int]] = [[] for _ in sources]
        limits = np.array([self.limit(source) for source in sources])
        ids, lengths = pad(sources)
        memory = dict(zip(MEMORY, self.encoder.run(None, {"source": ids, "lengths": lengths}), strict=True))
        layers, batch, heads, _, size = memory["memory_keys"].shape
        cache = {name: np.zeros((layers, batch, heads, 0, size), np.float32) for name in CACHE}
        alive, token = np.arange(batch), np.full(batch, BOS, np.int64)
        while alive.size:
            log_probs, *new_cache = self.decoder_step.run(None, {"token": token, "lengths": lengths, **cache, **memory})
            log_probs[:, [PAD, BOS, UNK]] = -np.inf
            if any(self.settings[name] for name in CONSTRAINTS):
                for row, sentence in zip(log_probs, alive.tolist(), strict=True):
                    row[self.forbidden(found[sentence])] = -np.inf
            token = log_probs.argmax(-1).astype(np.int64)
            token[new_cache[0].shape[3] > limits[alive]] = EOS
            left = token != EOS
            for sentence, word in zip(alive[left].tolist(), token[left].tolist(), strict=True):
                found[sentence].append(word)
            alive, token, lengths = alive[left], token[left], lengths[left]
            kept = slice(None) if left.all() else left
            cache = {name: values[:, kept] for name, values in zip(CACHE, new_cache, strict=True)}
            memory = {name: values[:, kept] for name, values in memory.items()}
        return found


def pad(sources: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources with </s> behind each as an array [B, S], and their lengths [B]."""
    lengths = np.array([len(source) + 1 for source in sources], np.int64)
    ids = np.full((len(sources), lengths.max()), PAD, np.int64)
    for row, source in zip(ids, sources, strict=True):
        row[: len(source) + 1] = [*source, EOS]
    return ids, lengths


def read_settings(folder: Path, format: str) -> dict[str, Any]:
    """The settings of an exported model, which must be of this format."""
    try:
        settings: dict[str, Any] = {**CONSTRAINTS, **read_json(folder / SETTINGS)}
    except FileNotFoundError:
        raise ValueError(f"{folder} has no {SETTINGS}; wanted a folder that rela export wrote") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / SETTINGS} is damaged: {error}") from None
    if settings.get("format") != format:
        raise ValueError(f"{folder} is an export to {settings.get('format')}; wanted one to {format}")
    wrong = [name for name in NUMBERS if type(settings.get(name)) not in (int, float) or settings[name] < 0]
    hashes = settings.get("sha256", {})  # older versions wrote none
    if wrong or not isinstance(hashes, dict):
        raise ValueError(f"{folder / SETTINGS} is damaged: {(*wrong, 'sha256')[0]} is not what rela export writes")
    for name, written in hashes.items():
        if (folder / name).is_file() and checksum(folder / name) != written:
            raise ValueError(f"{folder / name} is damaged, or of another export than {SETTINGS} beside it")
    return settings


def open_session(path: Path, threads: int) -> Any:
    """An onnxruntime session on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise ImportError("an exported model needs onnxruntime: pip install 'rela-attention[export]'") from None
    if not path.is_file():
        raise ValueError(f"{path} is missing; wanted a folder that rela export --to onnx wrote")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def translate_lines(model: OnnxTranslator, lines: Iterator[str]) -> Iterator[str]:
    """Translations in the order of the lines, which are read some at a time."""
    while window := list(islice(lines, WINDOW)):
        yield from model.translate(window)


def main(arguments: list[str]) -> None:
    """Translate the standard input, line by line."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m rela.export.onnx_translator FOLDER < TEXT")
    from rela.data.corpus import read_lines

    for translation in translate_lines(OnnxTranslator(arguments[0]), read_lines("-")):
        print(translation)


if __name__ == "__main__":
    main(sys.argv[1:])
