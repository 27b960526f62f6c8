"""RelaForConditionalGeneration: our Transformer as a model of `transformers`, for padded sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin, PreTrainedModel
from transformers import initialization as guarded
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
)

from rela.attention.multihead import MultiheadAttention
from rela.attention.norms import RMSNorm
from rela.attention.sparsity import collect_sparsity_penalty
from rela.config import ModelConfig
from rela.hugging_face.configuration import RelaConfig
from rela.hugging_face.layers import Hidden, RelaDecoderLayer, RelaEncoderLayer
from rela.model.embedding import Embedding, sinusoids
from rela.model.layers import FeedForward, scale_queries_and_keys
from rela.model.transformer import Transformer

IGNORED = -100
"""The label that counts for no loss."""
TRANSFORMERS_PARTS = {
    "source_embedding": "encoder.embedding",
    "encoder": "encoder.layers",
    "encoder_norm": "encoder.norm",
    "target_embedding": "decoder.embedding",
    "decoder": "decoder.layers",
    "decoder_norm": "decoder.norm",
    "output": "output",
}
"""The parts of our Transformer, and their names here."""


def make_embedding(config: ModelConfig) -> Embedding:
    return Embedding(config.vocabulary_size, config.width, config.max_length, config.dropout)


def make_norm(config: ModelConfig) -> nn.Module:
    return nn.LayerNorm(config.width) if config.norm_first else nn.Identity()


class RelaEncoder(nn.Module):
    """Padded source tokens [B, S] to their encoding [B, S, C]."""

    main_input_name = "input_ids"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = make_embedding(config)
        layers = nn.ModuleList(RelaEncoderLayer(config) for _ in range(config.encoder_layers))
        self.layers = cast(Iterable[RelaEncoderLayer], layers)
        self.norm = make_norm(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        positions = positions_of(input_ids, attention_mask, 0, self.embedding)
        x = self.embedding(input_ids, positions)
        hidden = Hidden(padding_of(attention_mask, input_ids.size(1)))
        states, weights = [x], []
        for layer in self.layers:
            x, seen = layer(x, hidden, bool(output_attentions))
            states.append(x)
            weights.append(seen)
        x = self.norm(x)
        return BaseModelOutput(
            last_hidden_state=x,
            hidden_states=(*states[:-1], x) if output_hidden_states else None,
            attentions=tuple(weights) if output_attentions else None,
        )


class RelaDecoder(nn.Module):
    """Padded target tokens [B, T], after those in a cache, to hidden states [B, T, C]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = make_embedding(config)
        layers = nn.ModuleList(RelaDecoderLayer(config) for _ in range(config.decoder_layers))
        self.layers = cast(Iterable[RelaDecoderLayer], layers)
        self.norm = make_norm(config)

    def forward(
        self,
        input_ids: Tensor,
        memory: Tensor,
        hidden_source: Hidden,
        attention_mask: Tensor | None = None,
        past: Any = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> Any:
        before = 0 if past is None else past.get_seq_length()
        x = self.embedding(input_ids, positions_of(input_ids, attention_mask, before, self.embedding))
        hidden = hidden_targets(input_ids, attention_mask, before, past)
        states, weights, cross_weights = [x], [], []
        for number, layer in enumerate(self.layers):
            x, seen, cross_seen = layer(x, memory, hidden, hidden_source, past, number, output_attentions)
            states.append(x)
            weights.append(seen)
            cross_weights.append(cross_seen)
        x = self.norm(x)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=x,
            past_key_values=past,
            hidden_states=(*states[:-1], x) if output_hidden_states else None,
            attentions=tuple(weights) if output_attentions else None,
            cross_attentions=tuple(cross_weights) if output_attentions else None,
        )


def positions_of(tokens: Tensor, mask: Tensor | None, before: int | Tensor, embedding: Embedding) -> Tensor:
    """The positions [B, T] of tokens that `before` others precede; padding does not count, wherever it is."""
    length, longest = tokens.size(1), len(embedding.positions)
    if length > longest:
        raise ValueError(f"input_ids have {length} tokens; wanted at most {longest}, the model's positions")
    if mask is None:
        return (torch.arange(length, device=tokens.device) + before).expand_as(tokens)
    wanted = [len(tokens), length + int(before)]
    if list(mask.shape) != wanted:
        raise ValueError(f"attention_mask has shape {list(mask.shape)}; wanted {wanted}, tokens in a cache included")
    return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]


def padding_of(mask: Tensor | None, keys: int) -> Tensor | None:
    """bool [B, S], True for keys that `mask` [B, ≤ S] hides; those after its end, of a static cache, are hidden too."""
    return None if mask is None else F.pad(mask == 0, (0, keys - mask.size(1)), value=True)


def hidden_targets(tokens: Tensor, mask: Tensor | None, before: int | Tensor, past: Any) -> Hidden:
    """What the tokens [B, T] may not see of themselves and of those `before` them."""
    queries = tokens.size(1)
    if past is None or not past.is_compileable:
        return Hidden(padding_of(mask, queries + int(before)), causal=True)
    keys = past.get_mask_sizes(queries, 0)[0]
    key, query = torch.arange(keys, device=tokens.device), torch.arange(queries, device=tokens.device)
    return Hidden(padding_of(mask, keys), key > query[:, None] + before)


class RelaForConditionalGeneration(PreTrainedModel, GenerationMixin):
    """The Transformer of `rela.model`: source and target tokens in, logits and loss out.

    `attention_mask` and `decoder_attention_mask` [B, S] are 0 for padding, on either side. The loss is the mean
    cross-entropy of the labels that are not -100, and the sparsity penalty where the configuration has a target.
    """

    config_class = RelaConfig
    config: RelaConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["RelaEncoderLayer", "RelaDecoderLayer"]  # noqa: RUF012 (as every class of theirs)
    _skip_keys_device_placement = "past_key_values"

    def __init__(self, config: RelaConfig) -> None:
        super().__init__(config)
        shape = config.model_config
        self.encoder, self.decoder = RelaEncoder(shape), RelaDecoder(shape)
        self.output = nn.Linear(shape.width, shape.vocabulary_size, bias=False)
        target = "decoder.embedding.table.weight"
        tied = {"output.weight": target} if shape.tied_embeddings == "target" else {}
        if shape.tied_embeddings == "all":
            tied = dict.fromkeys((target, "output.weight"), "encoder.embedding.table.weight")
        self._tied_weights_keys = tied
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The initial weights of `rela.model`; `transformers` has guarded the functions of nn.init."""
        if isinstance(module, (Embedding, FeedForward, MultiheadAttention, RMSNorm, nn.LayerNorm)):
            module.reset_parameters()
        if isinstance(module, Embedding):
            guarded.copy_(module.positions, sinusoids(*module.positions.shape))
        if isinstance(module, MultiheadAttention):
            nn.init.xavier_uniform_(module.out_proj.weight)
            if not getattr(module.in_proj_weight, "_is_hf_initialized", False):
                scale_queries_and_keys(module, self.query_key_gain_of(module))
        if module is self:
            nn.init.normal_(self.output.weight, std=self.config.hidden_size**-0.5)

    def query_key_gain_of(self, attention: MultiheadAttention) -> float:
        """The factor on the initial W_q and W_k of an attention, by its type."""
        gains = self.config.model_config.query_key_gains
        if any(layer.attention is attention for layer in self.encoder.layers):
            return gains.encoder
        return gains.cross if any(layer.cross is attention for layer in self.decoder.layers) else gains.decoder

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embedding.table

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embedding.table = value

    def get_output_embeddings(self) -> nn.Module:
        return self.output

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.output = new_embeddings

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in `transformers`, which knows of one table and the output."""
        tied, same = self.config.tied_embeddings, new_num_tokens in (None, self.config.vocab_size)
        if tied != "all" and not (same and pad_to_multiple_of is None):
            raise ValueError(f'tied_embeddings are "{tied}", and one of two tables would be resized; wanted "all"')
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self.encoder

    @staticmethod
    def create_masks_for_generate(attention_mask: Tensor | None = None, **others: Any) -> Tensor | None:
        """What `generate` asks for with a static cache; the decoder makes its masks itself."""
        return attention_mask

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        asked = {
            "output_attentions": bool(
                self.config.output_attentions if output_attentions is None else output_attentions
            ),
            "output_hidden_states": bool(
                self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
            ),
        }
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("decoder_input_ids and labels are missing; wanted one of them")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            if input_ids is None:
                raise ValueError("input_ids and encoder_outputs are missing; wanted one of them")
            encoder_outputs = self.encoder(input_ids, attention_mask, **asked)
        memory = encoder_outputs[0]
        cached = labels is None and bool(self.config.use_cache if use_cache is None else use_cache)
        checkpointed = any(layer.gradient_checkpointing for layer in self.decoder.layers)
        if past_key_values is None and cached and not checkpointed:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        hidden_source = Hidden(padding_of(attention_mask, memory.size(1)))
        decoded = self.decoder(
            decoder_input_ids, memory, hidden_source, decoder_attention_mask, past_key_values, **asked
        )
        logits = self.output(decoded.last_hidden_state)
        outputs = Seq2SeqLMOutput(
            loss=None if labels is None else self.loss_of(logits, labels, num_items_in_batch),
            logits=logits,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=memory,
            encoder_hidden_states=getattr(encoder_outputs, "hidden_states", None),
            encoder_attentions=getattr(encoder_outputs, "attentions", None),
        )
        return outputs if return_dict is not False else outputs.to_tuple()

    def loss_of(self, logits: Tensor, labels: Tensor, items: Tensor | int | None) -> Tensor:
        """The mean cross-entropy, over `items` labels where the trainer counted them over several batches."""
        rows, flat = logits.flatten(0, 1).float(), labels.flatten().to(logits.device)
        if items is None:
            loss = F.cross_entropy(rows, flat, ignore_index=IGNORED)
        else:
            loss = F.cross_entropy(rows, flat, ignore_index=IGNORED, reduction="sum") / items
        if self.training and self.config.target_sparsity is not None:
            weight = (self.config.experiment or {}).get("train", {}).get("sparsity_weight", 1.0)
            loss = loss + weight * collect_sparsity_penalty(self)
        return loss

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels [B, T] one step later, <s> first; -100 becomes padding, which no label looks back at."""
        shifted = F.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        return shifted.masked_fill(shifted == IGNORED, self.config.pad_token_id)

    @classmethod
    def from_rela(cls, model: Transformer, config: RelaConfig) -> RelaForConditionalGeneration:
        """A model with the weights of ours."""
        new = cls(config)
        missing, extra = new.load_state_dict(
            {transformers_name(name): w for name, w in model.state_dict().items()}, strict=False
        )
        if missing or extra:
            raise ValueError(f"the weights do not fit their configuration: {', '.join([*missing, *extra])}")
        return new.train(model.training)

    def to_rela(self) -> Transformer:
        """Our model with the weights of this one."""
        new = Transformer(self.config.model_config)
        weights = self.state_dict()
        new.load_state_dict({name: weights[transformers_name(name)] for name in new.state_dict()})
        return new.train(self.training)


def transformers_name(name: str) -> str:
    """The name here of a parameter of our Transformer."""
    part, _, rest = name.partition(".")
    return f"{TRANSFORMERS_PARTS[part]}.{rest}"
