"""An English–German corpus that needs no download: sentence pairs from a grammar, with their word links."""

from rela.data.toy.constructions import CONSTRUCTIONS
from rela.data.toy.corpus import ToyPair, generate, pharaoh, sentence_counts, split, write_corpus
from rela.data.toy.lexicon import lexicon_size
from rela.data.toy.noise import NOISES, add_noise

__all__ = [
    "CONSTRUCTIONS",
    "NOISES",
    "ToyPair",
    "add_noise",
    "generate",
    "lexicon_size",
    "pharaoh",
    "sentence_counts",
    "split",
    "write_corpus",
]
