"""Hugging Face families as tiny models with random weights, from their configurations: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch

V = 60
SPECIAL = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
STACK = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32,
         "max_position_embeddings": 64}  # fmt: skip
GROUPED = {**STACK, "num_key_value_heads": 2}
TWO_STACKS = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
              "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 0,
              "max_position_embeddings": 64, "forced_eos_token_id": None}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 12, "d_ff": 32, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}

# Name of the model class, then what its configuration says.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere": ("CohereForCausalLM", GROUPED),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**STACK, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8,
                                              "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6,
                                              "first_k_dense_replace": 2}),
    "gemma": ("GemmaForCausalLM", {**GROUPED, "head_dim": 12}),
    "gemma3": ("Gemma3ForCausalLM", {**GROUPED, "head_dim": 12, "sliding_window": 4,
                                     "layer_types": ["sliding_attention", "full_attention"]}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "gpt_neox": ("GPTNeoXForCausalLM", STACK),
    "granite": ("GraniteForCausalLM", GROUPED),
    "llama": ("LlamaForCausalLM", {**GROUPED, "head_dim": 12}),
    "mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 4}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 2, "sliding_window": None}),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "opt": ("OPTForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32,
                               "word_embed_proj_dim": 32, "max_position_embeddings": 64}),
    "phi": ("PhiForCausalLM", STACK),
    "phi3": ("Phi3ForCausalLM", {**GROUPED, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 12}),
    "smollm3": ("SmolLM3ForCausalLM", GROUPED),
    "stablelm": ("StableLmForCausalLM", GROUPED),
    "starcoder2": ("Starcoder2ForCausalLM", {**GROUPED, "sliding_window": None}),
    "biogpt": ("BioGptForCausalLM", STACK),
    "bert-decoder": ("BertLMHeadModel", {**STACK, "is_decoder": True}),
}  # fmt: skip
TRANSLATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("BartForConditionalGeneration", TWO_STACKS),
    "bigbird_pegasus": ("BigBirdPegasusForConditionalGeneration", {**TWO_STACKS, "attention_type": "original_full"}),
    "blenderbot": ("BlenderbotForConditionalGeneration", TWO_STACKS),
    "longt5": ("LongT5ForConditionalGeneration", {**T5, "local_radius": 3, "encoder_attention_type": "local"}),
    "m2m_100": ("M2M100ForConditionalGeneration", TWO_STACKS),
    "marian": ("MarianMTModel", TWO_STACKS),
    "mbart": ("MBartForConditionalGeneration", TWO_STACKS),
    "mt5": ("MT5ForConditionalGeneration", T5),
    "nllb_moe": ("NllbMoeForConditionalGeneration", {**TWO_STACKS, "num_experts": 2, "expert_capacity": 64}),
    "pegasus": ("PegasusForConditionalGeneration", TWO_STACKS),
    "pegasus_x": ("PegasusXForConditionalGeneration", {**TWO_STACKS, "block_size": 4, "num_global_tokens": 2}),
    "plbart": ("PLBartForConditionalGeneration", TWO_STACKS),
    "t5": ("T5ForConditionalGeneration", T5),
    "whisper": ("WhisperForConditionalGeneration", {**TWO_STACKS, "num_mel_bins": 4, "max_source_positions": 9,
                                                   "max_target_positions": 64}),
}  # fmt: skip
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("AlbertModel", {**STACK, "embedding_size": 16}),
    "bert": ("BertModel", STACK),
    "distilbert": ("DistilBertModel", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 32}),
    "electra": ("ElectraModel", {**STACK, "embedding_size": 16}),
    "roberta": ("RobertaModel", STACK),
    "xlm-roberta": ("XLMRobertaModel", STACK),
}

VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32,
          "image_size": 8, "patch_size": 4}  # fmt: skip
# Text and pictures: SigLIP also has a torch.nn.MultiheadAttention, GIT attentions outside the interface.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "clip": ("CLIPModel", {"text_config": {**STACK, **SPECIAL}, "vision_config": VISION}),
    "git": ("GitModel", {**STACK, **SPECIAL, "vision_config": VISION}),
    "siglip": ("SiglipModel", {"text_config": {**STACK, **SPECIAL}, "vision_config": VISION}),
    "vit": ("ViTModel", VISION),
}


def make(name: str, **changes: Any) -> torch.nn.Module:
    """The tiny model of a family, in evaluation and with its own eager attention unless `changes` say otherwise."""
    import transformers

    cls_name, config = {**DECODERS, **TRANSLATORS, **READERS, **OTHERS}[name]
    cls = getattr(transformers, cls_name)
    torch.manual_seed(0)
    special = {} if name in OTHERS else SPECIAL
    return cls(cls.config_class(**{**special, "attn_implementation": "eager", **config, **changes})).eval()
