"""Word links, and their files in the talp, Pharaoh and NAACL formats, numbered from 0 or from 1."""

import os
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

Link = tuple[int, int]  # (source word, target word), both counted from 0

FORMATS = ("auto", "talp", "pharaoh", "naacl")
ENOUGH_TO_WARN = 10  # sentences: if none of so many links its first word, words are counted from 1
MOST_SENTENCES = 10_000_000  # a NAACL sentence number beyond this is a broken file, not a corpus,
SPARSEST = 1000  # and so is one beyond this many times the sentences that have links: a line must not become millions
LONGEST_LINE = 1 << 24  # bytes

_TALP = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")
_NAACL = re.compile(
    r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})(?:\s+([SP]))?(?:\s+[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)?"
)


@dataclass(frozen=True)
class GoldLinks:
    """The links people drew for one sentence pair; a sure link is a possible one too."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            raise ValueError(f"sure links must be possible too; {min(self.sure - self.possible)} is not")


def read_links(
    path: str | os.PathLike[str], one_based: bool = False, flip: bool = False, format: str = "auto"
) -> list[GoldLinks]:
    """The gold links of each sentence of a file, as (source, target) counted from 0.

    - `talp`: a sentence a line, `3-5` a sure link and `3p5` a possible one.
    - `pharaoh`: a sentence a line, sure links `3-5` only.
    - `naacl`: a link a line, `sentence source target [S|P] [confidence]`, sentences in any order and numbered from 1
      (from 0 if a 0 occurs), sure if not said; with `one_based` (as the shared task has it) position 0 is the empty
      word, and such a link is no link.
    - `auto` tells NAACL from the other two by the first line that is not empty.

    `one_based` is how the file counts words, and a file that looks otherwise is warned of; `flip` swaps the sides of a
    file written target first.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown link format {format!r}; it is one of {', '.join(FORMATS)}")
    lines = _lines(Path(path))
    if format == "auto":
        first = next((line for line in lines if line.strip()), "")
        format = "naacl" if _NAACL.fullmatch(first.strip()) else "talp"
    reader = _read_naacl if format == "naacl" else _read_talp
    found = [_gold(sentence, flip) for sentence in reader(lines, path, one_based, possible_too=format != "pharaoh")]
    linked = [gold.possible for gold in found if gold.possible]
    if not one_based and len(linked) >= ENOUGH_TO_WARN and all(min(link) > 0 for links in linked for link in links):
        warnings.warn(
            f"{path}: no link has a word 0; where words are counted from 1, say that it is one-based", stacklevel=2
        )
    return found


def read_hypotheses(
    path: str | os.PathLike[str], one_based: bool = False, flip: bool = False, format: str = "auto"
) -> list[frozenset[Link]]:
    """The proposed links of each sentence of a file; read as `read_links` does, sure and possible alike."""
    return [gold.possible for gold in read_links(path, one_based, flip, format)]


def pharaoh(links: Iterable[Link], one_based: bool = False) -> str:
    """The links of one sentence in the Pharaoh format, sorted: `0-0 1-2`."""
    return talp(GoldLinks(frozenset(links), frozenset(links)), one_based)


def talp(gold: GoldLinks, one_based: bool = False) -> str:
    """The links of one sentence in the talp format, sorted: `0-0 1p2`."""
    return " ".join(
        f"{source + one_based}{'-' if (source, target) in gold.sure else 'p'}{target + one_based}"
        for source, target in sorted(gold.possible)
    )


def naacl(sentences: Iterable[GoldLinks]) -> Iterator[str]:
    """The lines of a NAACL file; sentences and words count from 1, as the shared task has it."""
    for number, gold in enumerate(sentences, start=1):
        for source, target in sorted(gold.possible):
            yield f"{number:04d} {source + 1} {target + 1} {'S' if (source, target) in gold.sure else 'P'}"


def _lines(path: Path) -> list[str]:
    """The lines of a file, or of the standard input if it is "-", without their ends; invalid UTF-8 is an error."""
    lines = []
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if len(line) == LONGEST_LINE:
                raise ValueError(f"{path}:{number}: a line over {LONGEST_LINE >> 20} MiB is not one of links")
            try:
                lines.append(line.decode("utf-8").rstrip("\r\n"))
            except UnicodeDecodeError:
                raise ValueError(f"{path}:{number}: not UTF-8 text") from None
    return lines


def _read_talp(
    lines: list[str], path: str | os.PathLike[str], one_based: bool, possible_too: bool
) -> Iterator[list[tuple[int, int, bool]]]:
    for number, line in enumerate(lines, start=1):
        sentence = []
        for item in line.split():
            match = _TALP.fullmatch(item)
            if match is None or (match[2] == "p" and not possible_too):
                wanted = "links such as 3-5 or 3p5" if possible_too else "links such as 3-5"
                raise ValueError(f"{path}:{number}: {wanted} are wanted, found {item[:40]!r}")
            source, target = int(match[1]) - one_based, int(match[3]) - one_based
            if source < 0 or target < 0:
                raise ValueError(f"{path}:{number}: word 0 in {item!r}, but the words count from 1")
            sentence.append((source, target, match[2] == "-"))
        yield sentence


def _read_naacl(
    lines: list[str], path: str | os.PathLike[str], one_based: bool, possible_too: bool
) -> Iterator[list[tuple[int, int, bool]]]:
    sentences: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _NAACL.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{path}:{number}: a line such as '1 3 5 S' is wanted, found {line[:40]!r}")
        sentence = int(match[1])
        if sentence > MOST_SENTENCES:
            raise ValueError(f"{path}:{number}: sentence number {sentence} is beyond {MOST_SENTENCES}")
        source, target = int(match[2]) - one_based, int(match[3]) - one_based
        links = sentences[sentence]  # a sentence linked to the empty word only is a sentence all the same
        if source >= 0 and target >= 0:
            links.append((source, target, match[4] != "P"))
    if sentences:
        if max(sentences) > SPARSEST * len(sentences):
            named = f"sentence number {max(sentences)}, and {len(sentences)} of them have links"
            raise ValueError(f"{path}: {named}; wanted links of one sentence in {SPARSEST}, at least")
        for sentence in range(0 if 0 in sentences else 1, max(sentences) + 1):
            yield sentences.get(sentence, [])


def _gold(links: list[tuple[int, int, bool]], flip: bool) -> GoldLinks:
    if flip:
        links = [(target, source, sure) for source, target, sure in links]
    sure = frozenset((source, target) for source, target, is_sure in links if is_sure)
    return GoldLinks(sure, sure | {(source, target) for source, target, _ in links})
