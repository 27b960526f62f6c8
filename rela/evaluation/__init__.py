"""Scores of translations and of word links; knows strings and links, and nothing of models."""
