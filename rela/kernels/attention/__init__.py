"""Fused attention by rectifiers in Triton: forward, backward, decode, and the tiles they run on."""
