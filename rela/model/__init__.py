"""The Transformer: packed sentences in training, one token at a time in decoding."""
