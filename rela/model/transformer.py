"""The encoder-decoder Transformer of the paper, with any attention kind in each of its three attentions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rela.attention.cache import KVCache
from rela.config import ModelConfig
from rela.model.embedding import Embedding
from rela.model.layers import DecoderLayer, EncoderLayer
from rela.model.padding import padded_keys
from rela.model.state import DecoderState
from rela.packing import Packing


class Transformer(nn.Module):
    """Packed source tokens in, target logits out; `encode`, `decode` and `decode_step` are its three uses."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        size, width = config.vocabulary_size, config.width
        self.source_embedding = Embedding(size, width, config.max_length, config.dropout)
        if config.tied_embeddings == "all":
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = Embedding(size, width, config.max_length, config.dropout)
        encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder, self.decoder = cast(Iterable[EncoderLayer], encoder), cast(Iterable[DecoderLayer], decoder)
        self.encoder_norm = nn.LayerNorm(width) if config.norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width) if config.norm_first else nn.Identity()
        self.output = nn.Linear(width, size, bias=False)
        if config.tied_embeddings == "none":
            nn.init.normal_(self.output.weight, std=width**-0.5)
        else:
            self.output.weight = self.target_embedding.table.weight

    def encode(self, source: Tensor, positions: Tensor, sources: Packing) -> Tensor:
        """Packed source tokens [M] to their encoding [M, C]."""
        x = self.source_embedding(source, positions)
        for layer in self.encoder:
            x = layer(x, sources)
        return self.encoder_norm(x)

    def decode(self, target: Tensor, positions: Tensor, targets: Packing, memory: Tensor, sources: Packing) -> Tensor:
        """Packed target tokens [N], each seeing those before it and the encoded source, to hidden states [N, C]."""
        x = self.target_embedding(target, positions)
        for layer in self.decoder:
            x = layer(x, targets, memory, sources)
        return self.decoder_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., C] to logits over the vocabulary [..., V]."""
        return self.output(hidden)

    def start(self, memory: Tensor, sources: Packing) -> DecoderState:
        """The state before the first decoder step: cross keys and values of each sentence, projected once."""
        longest = padded_keys(sources.max_seqlen, self.config.width // self.config.heads)
        dense = sources.pad(memory[:, None], longest)[:, 0]  # [B, S, C]
        memories = [layer.cross.remember(dense) for layer in self.decoder]
        # Laid out once as they will be after sentences have left, so that no step sees another layout, or copies them.
        memories = [KVCache(memory.keys.contiguous(), memory.values.contiguous()) for memory in memories]
        return DecoderState([KVCache() for _ in self.decoder], memories, sources.lengths)

    def decode_step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The next token of every row [R] to log-probabilities of the one after it [R, V]; the state moves on."""
        x = self.target_embedding(tokens, torch.full_like(tokens, state.position))
        for number, layer in enumerate(self.decoder):
            weights: list[Tensor] | None = [] if number == state.watched else None
            x = layer.step(x, state.caches[number], state.memories[number], state.source_lengths, weights)
            if weights:
                (state.cross_weights,) = weights
        state.position += 1
        return F.log_softmax(self.logits(self.decoder_norm(x)).float(), dim=-1), state

    def forward(
        self,
        source: Tensor,
        source_positions: Tensor,
        sources: Packing,
        target: Tensor,
        target_positions: Tensor,
        targets: Packing,
    ) -> Tensor:
        """Hidden states [N, C] of the decoder, teacher-forced."""
        return self.decode(target, target_positions, targets, self.encode(source, source_positions, sources), sources)

    def centre_keys(self, share: Tensor | None) -> None:
        """From now on, packed keys of encoder and cross attention do without `share` of their sentence's mean key.

        For training alone: `start` and `decode_step` know plain keys. Causal attention has no mean to take off, since a
        query must not see the keys after it.
        """
        for attention in [*(layer.attention for layer in self.encoder), *(layer.cross for layer in self.decoder)]:
            attention.centring = share

    def parameter_counts(self) -> dict[str, int]:
        """Parameters by part; tied ones count once, in the first part that holds them."""
        parts: dict[str, list[nn.Module]] = {
            "embeddings": [self.source_embedding, self.target_embedding],
            "encoder attention": [layer.attention for layer in self.encoder],
            "decoder attention": [layer.attention for layer in self.decoder],
            "cross attention": [layer.cross for layer in self.decoder],
            "feed-forward": [*(x.feed_forward for x in self.encoder), *(x.feed_forward for x in self.decoder)],
            "output": [self.output],
            "layer norms": [self],
        }
        seen: set[nn.Parameter] = set()
        counts = {}
        for name, modules in parts.items():
            new = {parameter for module in modules for parameter in module.parameters()} - seen
            counts[name] = sum(parameter.numel() for parameter in new)
            seen |= new
        return counts
