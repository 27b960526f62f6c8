"""Element and tile sparsity of a trained model: the share of its weights that are zero, and of whole tiles.

    python -m benchmarks.attention_sparsity demo/rela-g/model demo/corpus/test.en demo/corpus/test.de

A kernel can only skip a tile if it is empty for all its queries and keys. So the second number is the share of work
that skipping could save. Here a tile lies within one sentence pair, and only keys that a query may see are counted.
Needs no GPU.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from rela.analysis.capture import capture
from rela.analysis.record import TYPES, AttentionRecord
from rela.attention.masks import causal_mask
from rela.decoding.translate import Translator

EDGES = (1, 8, 16, 32)  # of square tiles; 1 is a single weight


def tiles_with(flags: Tensor, edge: int) -> Tensor:
    """[…, T, S] → […, tiles, tiles]: whether a tile holds a True."""
    T, S = flags.shape[-2:]
    padded = F.pad(flags, (0, -S % edge, 0, -T % edge))
    return padded.unflatten(-1, (-1, edge)).any(-1).unflatten(-2, (-1, edge)).any(-2)


def count(record: AttentionRecord, edge: int) -> tuple[int, int]:
    """Empty tiles and all tiles that a query may look into, over layers and heads."""
    T, S = record.weights.shape[-2:]
    visible = causal_mask(T, S) if record.type == "decoder" else record.weights.new_ones(T, S).bool()
    seen = tiles_with(visible, edge)
    full = tiles_with(record.weights != 0, edge)
    return int((seen & ~full).sum()), int(seen.sum()) * full.shape[0] * full.shape[1]


def main(model: Path, source: Path, target: Path, limit: int) -> None:
    translator = Translator.load(model, device="cpu")
    pairs = list(zip(source.read_text().splitlines(), target.read_text().splitlines(), strict=True))[:limit]
    empty: dict[tuple[str, int], int] = defaultdict(int)
    tiles: dict[tuple[str, int], int] = defaultdict(int)
    lengths = []
    for pair in capture(translator, pairs):
        lengths.append(len(pair["encoder"].keys))
        for type in TYPES:
            for edge in EDGES:
                some, all = count(pair[type], edge)
                empty[type, edge] += some
                tiles[type, edge] += all
    print(f"{len(lengths)} pairs, {sum(lengths) / len(lengths):.1f} source tokens on average, {max(lengths)} at most")
    print("attention  zero weights  " + "  ".join(f"empty {edge} × {edge}" for edge in EDGES[1:]))
    for type in TYPES:
        shares = [empty[type, edge] / tiles[type, edge] for edge in EDGES]
        print(f"{type:9s}  {shares[0]:12.1%}  " + "  ".join(f"{share:13.1%}" for share in shares[1:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--limit", type=int, default=500, help="pairs")
    options = parser.parse_args()
    main(options.model, options.source, options.target, options.limit)
