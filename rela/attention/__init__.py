"""Attention with exchangeable weights and output norms; torch alone, useful without the rest of the package.

One legend for all files: B batch, H query heads, Hk key/value heads, T queries, S keys, D head size,
C model size, N and M packed query and key tokens.
"""
