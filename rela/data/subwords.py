"""Subword units: SentencePiece models, joint or one a language, learnt and stored as bytes in the model folder."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rela.files import read_part, write_bytes

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = (PAD, BOS, EOS)
"""Ids that stand for no text. UNK does stand for text, and decodes to ⁇."""

WORD_START = "▁"
"""What SentencePiece writes for the space before a word."""
ARCHIVE, MEMBERS = b"PK", ("source.model", "target.model")
"""How the bytes of two vocabularies begin, and the names in the archive."""
SAMPLING = threading.Lock()
"""Held between setting SentencePiece's seed and drawing with it."""
NO_BREAK = "\u00a0"
GAP = re.compile(r"\s+")
NO_BREAKS = "\u00a0\u2007\u202f"
BREAK = re.compile(f"[^\\S{NO_BREAKS}]+")
"""White space that ends a word: all but the three no-break spaces."""


INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
"""Soft hyphens, and marks that only allow or forbid a line end."""


class Subwords:
    """Text to ids and back by one SentencePiece model.

    Pieces never cross white space and the words they make are those of `text.split()`, so links between
    words survive the way to subwords and back. The model reads a no-break space as a plain one; `joined` puts the
    words around it together again. Nothing else is normalised (see `train_subwords`), unless a text has characters that
    the vocabulary lacks: see `readable`. With separate vocabularies the methods are those of the target, and `source`
    has those of the source; the bytes are a ZIP archive of two models.
    """

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self.model = model
        self.source = self
        """The vocabulary of the source: the same, unless there are two."""
        if model.startswith(ARCHIVE):
            source, model = unpack_models(model)
            self.source = Subwords(source)
        self.processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            if not model:
                raise RuntimeError("empty")
            self.processor.LoadFromSerializedProto(model)
        except RuntimeError:
            raise ValueError(f"these {len(model)} bytes are no SentencePiece model, or only a part of one") from None
        ids = tuple(getattr(self.processor, name)() for name in ("pad_id", "bos_id", "eos_id", "unk_id"))
        if ids != (PAD, BOS, EOS, UNK):
            raise ValueError(f"the model's pad, bos, eos, unk ids are {ids}; wanted {(PAD, BOS, EOS, UNK)}")

    @classmethod
    def load(cls, path: str | Path) -> Subwords:
        """Read a model file; ValueError if it is truncated or something else."""
        model = read_part(path)
        try:
            return cls(model)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all."""
        write_bytes(path, self.model)

    @property
    def is_joint(self) -> bool:
        """Whether source and target have one vocabulary."""
        return self.source is self

    @property
    def size(self) -> int:
        """V, special symbols included."""
        return int(self.processor.get_piece_size())

    @property
    def sha256(self) -> str:
        """What tells two vocabularies apart."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS and EOS."""
        ids: list[int] = self.processor.encode(tidy(text))
        return ids if UNK not in ids else list(self.processor.encode(self.readable(text)))

    def readable(self, text: str) -> str:
        """The text whose ids `encode` gives: `tidy`, or `composed` if fewer of its characters are unknown."""
        return min((tidy(text), composed(text)), key=lambda form: self.processor.encode(form).count(UNK))

    def encode_batch(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of many texts, each as `encode` gives them."""
        ids: list[list[int]] = self.processor.encode([tidy(text) for text in texts], num_threads=threads)
        return [one if UNK not in one else self.encode(text) for one, text in zip(ids, texts, strict=True)]

    def sample_batch(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """Ids of many texts, cut at random: by BPE-dropout, or drawn from a unigram model; a function of the seed.

        SentencePiece has one seed for all threads of the process, each of which takes it when it first draws. It makes
        a new thread for each batch, so the seed that was set last is the one of the batch.
        """
        import sentencepiece

        with SAMPLING:
            sentencepiece.set_random_generator_seed(seed % (1 << 32))
            tidied = [tidy(text) for text in texts]
            ids: list[list[int]] = self.processor.encode(
                tidied, enable_sampling=True, alpha=alpha, nbest_size=-1, num_threads=1
            )
        return ids

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Texts of many lists of ids without PAD, BOS and EOS, each as `decode` gives them."""
        texts: list[str] = self.processor.decode(list(map(list, ids)), num_threads=1)
        return texts

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; PAD, BOS and EOS vanish, an unknown character shows as ⁇."""
        text: str = self.processor.decode(self._known([int(index) for index in ids if index not in SPECIAL]))
        return text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The written form of each id; ▁ marks the first piece of a word."""
        pieces: list[str] = self.processor.id_to_piece(self._known([int(index) for index in ids]))
        return pieces

    def _known(self, ids: list[int]) -> list[int]:
        size = self.size
        for index in (min(ids, default=0), max(ids, default=0)):
            if not 0 <= index < size:
                raise ValueError(f"id {index} is not in the vocabulary of {size} pieces")
        return ids

    def __reduce__(self) -> tuple[type[Subwords], tuple[bytes]]:
        return Subwords, (self.model,)


def pack_models(source: Subwords, target: Subwords) -> Subwords:
    """Two vocabularies as one object: a ZIP archive, without compression or times, of source.model and target.model."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, subwords in zip(MEMBERS, (source, target), strict=True):
            archive.writestr(zipfile.ZipInfo(name), subwords.model)
    return Subwords(content.getvalue())


def unpack_models(content: bytes) -> tuple[bytes, bytes]:
    """The models of source and target in an archive of both, or a ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if [member.filename for member in members] != list(MEMBERS):
                raise zipfile.BadZipFile("it holds other files")
            if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
                raise zipfile.BadZipFile("it is compressed or encrypted")
            source, target = (archive.read(member) for member in members)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError) as error:
        raise ValueError(f"this archive is not one of {' and '.join(MEMBERS)}: {error}") from None
    if source.startswith(ARCHIVE) or target.startswith(ARCHIVE):
        raise ValueError("this archive holds another one")
    return source, target


def tidy(text: str) -> str:
    """One plain space between the words of `text.split()`, and no ▁ that could be taken for one."""
    return " ".join(text.replace(WORD_START, "_").split())


def composed(text: str) -> str:
    """The same words, tidy, with each accent in its letter (Unicode's NFC) and without invisible characters.

    A word of such characters alone stays, so that the words keep their numbers.
    """
    words = unicodedata.normalize("NFC", tidy(text)).split()
    return " ".join(INVISIBLE.sub("", word) or word for word in words)


def split_words(text: str) -> list[str]:
    """The words of a text, as links count them: a no-break space is a part of a word."""
    return [word for word in BREAK.split(text) if word.strip()]


def has_no_break(text: str) -> bool:
    """Whether there is a no-break space in a text, so that its words are other than those of `text.split()`."""
    return any(space in text for space in NO_BREAKS)


def joined(pieces: Sequence[str], text: str) -> tuple[str, ...]:
    """The pieces of a text, of which none after a no-break space is marked as the start of a word."""
    inside = {index for index, gap in enumerate(GAP.findall(text.strip()), start=1) if not BREAK.search(gap)}
    if not inside:
        return tuple(pieces)
    word, marked = -1, []
    for piece in pieces:
        starts = piece.startswith(WORD_START)
        word += starts
        marked.append(NO_BREAK + piece.removeprefix(WORD_START) if starts and word in inside else piece)
    return tuple(marked)


def train_subwords(
    lines: Iterable[str],
    size: int,
    *,
    seed: int = 1,
    character_coverage: float = 1.0,
    threads: int = 4,
    kind: str = "bpe",
) -> Subwords:
    """Learn a "bpe" or "unigram" model of `size` pieces, special symbols included, from lines of both languages.

    Characters are left as they are (SentencePiece's "identity" normalisation): NFKC would rewrite the target
    side away from the references it is scored against ("…" to "...", "½" to "1⁄2") and turn some words into two
    ("´" to space and accent), after which gold word links point at the wrong words. There is no byte
    fallback: its 256 pieces are a large part of a small vocabulary, and `character_coverage` 1 knows every
    character of the sample. For BPE SentencePiece is given words with their counts, from which it learns the same
    pieces as from the lines themselves in half the memory; for a unigram model it is given the lines, since it looks
    for its first pieces in each word once, however often that occurs. The number of threads is part of the stored
    model, so it does not follow the machine.
    """
    import sentencepiece

    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for line in lines:
            count += 1
            yield tidy(line)

    def word_counts() -> Iterator[str]:
        words: Counter[str] = Counter()
        for line in counted():
            words.update(line.split())
        for word, times in words.items():
            yield f"{word}\t{times}"

    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed % (1 << 32))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=word_counts() if kind == "bpe" else counted(),
            input_format="tsv" if kind == "bpe" else "text",
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            max_sentence_length=1 << 14,
            num_threads=threads,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(explain(str(error), size, count)) from None
    return Subwords(model.getvalue())


def explain(message: str, size: int, lines: int) -> str:
    """SentencePiece's failure in one line that says what to change."""
    if found := re.search(r"too high \(\d+\).*<= (\d+)", message):
        return f"{lines} lines are too few for a vocabulary of {size}; they allow at most {found[1]} pieces"
    if found := re.search(r"required_chars. \d+ vs (\d+)", message):
        return f"a vocabulary of {size} cannot hold every character; wanted at least {found[1]}, or a lower coverage"
    if "sentences_.empty()" in message:
        return f"no text to learn a vocabulary of {size} from"
    return f"no vocabulary of {size} could be learnt from {lines} lines: {' '.join(message.split())}"
