"""Scores of sentence pairs, and corpora ranked and filtered by them."""
