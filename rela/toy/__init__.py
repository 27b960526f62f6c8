"""An English–German corpus that needs no download: sentence pairs from a grammar, with their word links.

The grammar draws a meaning and says it in both languages, so that the links follow from what the words express:
`words` says how, and `clauses` and `phrases` which words are linked by convention. From the small to the large:

    words, spaces                           what a word and a countable set are
    english, german                         inflection
    nouns, verbs, adjectives, particles     the lexicon, counted in `lexicon`
    phrases, clauses                        both languages' word order
    moments, verb_groups, selection         what makes sense with what
    sentences, simple_sentences, questions, complex_sentences, coordination, constructions
    corpus, noise                           pairs, splits, files, and pairs spoilt on purpose
"""

from rela.toy.constructions import CONSTRUCTIONS
from rela.toy.corpus import ToyPair, generate, pharaoh, sentence_counts, split, write_corpus
from rela.toy.lexicon import lexicon_size
from rela.toy.noise import NOISES, add_noise

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
