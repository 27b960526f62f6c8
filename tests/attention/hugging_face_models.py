"""Hugging Face families as tiny models with random weights, from their configurations: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import pytest
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

EXPERTS = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
ROUTED = {"n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1, "moe_intermediate_size": 16,
          "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "head_dim": 8}  # fmt: skip
WINDOWED = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
SMALL_HEADS = {**GROUPED, "head_dim": 8}
# More of them, for the campaign.
MORE_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "apertus": ("ApertusForCausalLM", GROUPED),
    "arcee": ("ArceeForCausalLM", GROUPED),
    "bitnet": ("BitNetForCausalLM", GROUPED),
    "cohere2": ("Cohere2ForCausalLM", {**GROUPED, **WINDOWED}),
    "cwm": ("CwmForCausalLM", {**SMALL_HEADS, **WINDOWED}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", DECODERS["deepseek_v3"][1]),
    "diffllama": ("DiffLlamaForCausalLM", GROUPED),
    "doge": ("DogeForCausalLM", {**GROUPED, "sliding_window": None}),
    "dots1": ("Dots1ForCausalLM", {**GROUPED, **ROUTED}),
    "electra-decoder": ("ElectraForCausalLM", {**STACK, "embedding_size": 16, "is_decoder": True}),
    "ernie4_5": ("Ernie4_5ForCausalLM", SMALL_HEADS),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", {**SMALL_HEADS, "moe_num_experts": 2, "moe_k": 1,
                                                 "moe_intermediate_size": 16, "moe_layer_start_index": 1}),
    "exaone4": ("Exaone4ForCausalLM", {**GROUPED, "sliding_window": 4, "sliding_window_pattern": 2}),
    "flex_olmo": ("FlexOlmoForCausalLM", {**GROUPED, **EXPERTS}),
    "glm": ("GlmForCausalLM", SMALL_HEADS),
    "glm4": ("Glm4ForCausalLM", SMALL_HEADS),
    "glm4_moe": ("Glm4MoeForCausalLM", {**GROUPED, **ROUTED}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", DECODERS["gpt2"][1]),
    "granitemoe": ("GraniteMoeForCausalLM", {**GROUPED, **EXPERTS}),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", {**GROUPED, **EXPERTS, "shared_intermediate_size": 16}),
    "helium": ("HeliumForCausalLM", SMALL_HEADS),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", SMALL_HEADS),
    "jamba": ("JambaForCausalLM", {**GROUPED, **EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1,
                                   "mamba_d_state": 4, "mamba_d_conv": 2, "mamba_expand": 1, "mamba_dt_rank": 2,
                                   "use_mamba_kernels": False}),
    "lfm2": ("Lfm2ForCausalLM", {**GROUPED, "layer_types": ["conv", "full_attention"]}),
    "llama4_text": ("Llama4ForCausalLM", {**SMALL_HEADS, "num_local_experts": 2, "intermediate_size_mlp": 32,
                                          "attention_chunk_size": 4,
                                          "layer_types": ["chunked_attention", "full_attention"]}),
    "ministral": ("MinistralForCausalLM", {**SMALL_HEADS, "sliding_window": 4}),
    "modernbert-decoder": ("ModernBertDecoderForCausalLM", {**STACK, "local_attention": 4,
                                                            "global_attn_every_n_layers": 2}),
    "nanochat": ("NanoChatForCausalLM", GROUPED),
    "nemotron": ("NemotronForCausalLM", GROUPED),
    "olmo": ("OlmoForCausalLM", GROUPED),
    "olmo3": ("Olmo3ForCausalLM", {**GROUPED, **WINDOWED}),
    "olmoe": ("OlmoeForCausalLM", {**GROUPED, **EXPERTS}),
    "persimmon": ("PersimmonForCausalLM", STACK),
    "phimoe": ("PhimoeForCausalLM", {**GROUPED, **EXPERTS, "sliding_window": None}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 16}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**SMALL_HEADS, **EXPERTS}),
    "roberta-decoder": ("RobertaForCausalLM", {**STACK, "is_decoder": True}),
    "seed_oss": ("SeedOssForCausalLM", SMALL_HEADS),
}  # fmt: skip
# An indexer chooses keys for each query, and among equals by the length of a row: a cache may change what it chooses.
CHOSEN_KEYS = {**DECODERS["deepseek_v3"][1], **ROUTED, "index_topk": 3, "index_n_heads": 2, "index_head_dim": 8}
INDEXED: dict[str, tuple[str, dict[str, Any]]] = {
    "axk2": ("AXK2ForCausalLM", CHOSEN_KEYS),
    "deepseek_v32": ("DeepseekV32ForCausalLM", CHOSEN_KEYS),
    "dots3_note": ("Dots3NoteForCausalLM", CHOSEN_KEYS),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", CHOSEN_KEYS),
}
MORE_TRANSLATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "blenderbot_small": ("BlenderbotSmallForConditionalGeneration", TWO_STACKS),
    "umt5": ("UMT5ForConditionalGeneration", T5),
}
MORE_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "camembert": ("CamembertModel", STACK),
    "data2vec": ("Data2VecTextModel", STACK),
    "ernie": ("ErnieModel", STACK),
    "esm": ("EsmModel", {**STACK, "position_embedding_type": "rotary"}),
    "eurobert": ("EuroBertModel", GROUPED),
    "layoutlm": ("LayoutLMModel", STACK),
    "markuplm": ("MarkupLMModel", STACK),
    "mobilebert": ("MobileBertModel", {**STACK, "embedding_size": 16, "intra_bottleneck_size": 16}),
    "modernbert": ("ModernBertModel", {**STACK, "local_attention": 4, "global_attn_every_n_layers": 2}),
    "nomic_bert": ("NomicBertModel", STACK),
    "roc_bert": ("RoCBertModel", {**STACK, "pronunciation_vocab_size": V, "shape_vocab_size": V}),
    "splinter": ("SplinterModel", STACK),
    "xlm-roberta-xl": ("XLMRobertaXLModel", STACK),
    "xmod": ("XmodModel", {**STACK, "languages": ["en"], "default_language": "en"}),
}
# Attentions outside the interface of transformers, and scores with a soft cap or sinks.
SMALL_GPT = DECODERS["gpt2"][1]
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "codegen": ("CodeGenForCausalLM", {**SMALL_GPT, "rotary_dim": 4}),
    "convbert": ("ConvBertModel", STACK),
    "deberta-v2": ("DebertaV2Model", STACK),
    "falcon": ("FalconForCausalLM", STACK),
    "fsmt": ("FSMTForConditionalGeneration", {**TWO_STACKS, "langs": ["en", "de"], "src_vocab_size": V,
                                              "tgt_vocab_size": V}),
    "gemma2": ("Gemma2ForCausalLM", SMALL_HEADS),
    "gpt_neo": ("GPTNeoForCausalLM", {"hidden_size": 32, "num_layers": 2, "num_heads": 4,
                                      "attention_types": [[["global", "local"], 1]]}),
    "gpt_oss": ("GptOssForCausalLM", {**SMALL_HEADS, **EXPERTS}),
    "gptj": ("GPTJForCausalLM", {**SMALL_GPT, "rotary_dim": 4}),
    "imagegpt": ("ImageGPTForCausalImageModeling", SMALL_GPT),
    "led": ("LEDForConditionalGeneration", {**TWO_STACKS, "attention_window": 4}),
    "inkling2": ("Inkling2ForCausalLM", {**SMALL_HEADS, **EXPERTS, "sliding_window": 4}),
    "lilt": ("LiltModel", STACK),
    "megatron-bert": ("MegatronBertModel", STACK),
    "minimax_m3": ("MiniMaxM3VLForCausalLM", {**SMALL_HEADS, **EXPERTS, "index_n_heads": 2, "index_head_dim": 8,
                                              "layer_types": ["full_attention", "minimax_m3_sparse"]}),
    "mpnet": ("MPNetModel", STACK),
    "mpt": ("MptForCausalLM", {"d_model": 32, "n_heads": 4, "n_layers": 2}),
    "mvp": ("MvpForConditionalGeneration", TWO_STACKS),
    "nystromformer": ("NystromformerModel", STACK),
    "openai-gpt": ("OpenAIGPTLMHeadModel", SMALL_GPT),
    "prophetnet": ("ProphetNetForConditionalGeneration", {"hidden_size": 32, "encoder_ffn_dim": 32,
                                                          "decoder_ffn_dim": 32, "num_encoder_layers": 1,
                                                          "num_decoder_layers": 1, "num_encoder_attention_heads": 4,
                                                          "num_decoder_attention_heads": 4}),
    "rembert": ("RemBertModel", {**STACK, "input_embedding_size": 16, "output_embedding_size": 16}),
    "trocr": ("TrOCRForCausalLM", {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
                                   "decoder_ffn_dim": 32, "is_decoder": True}),
    "vaultgemma": ("VaultGemmaForCausalLM", SMALL_HEADS),
    "xglm": ("XGLMForCausalLM", {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 32}),
    "yoso": ("YosoModel", STACK),
}  # fmt: skip

VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32,
          "image_size": 8, "patch_size": 4}  # fmt: skip
# Text and pictures: SigLIP also has a torch.nn.MultiheadAttention, GIT attentions outside the interface.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "clip": ("CLIPModel", {"text_config": {**STACK, **SPECIAL}, "vision_config": VISION}),
    "git": ("GitModel", {**STACK, **SPECIAL, "vision_config": VISION}),
    "siglip": ("SiglipModel", {"text_config": {**STACK, **SPECIAL}, "vision_config": VISION}),
    "vit": ("ViTModel", VISION),
}

CONVOLUTIONS = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (5, 3), "num_feat_extract_layers": 2,
                "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}  # fmt: skip
SOUND = {**STACK, **CONVOLUTIONS}
TEXT_AND_PICTURE = {"text_config": {**STACK, **SPECIAL}, "vision_config": VISION}
# More that read pictures, films and sound, for the campaign.
MORE_OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "altclip": ("AltCLIPModel", {"text_config": {**STACK, **SPECIAL, "project_dim": 16}, "vision_config": VISION}),
    "beit": ("BeitModel", {**VISION, "use_mean_pooling": False}),
    "chinese_clip": ("ChineseCLIPModel", TEXT_AND_PICTURE),
    "data2vec-audio": ("Data2VecAudioModel", SOUND),
    "deit": ("DeiTModel", VISION),
    "dinov2": ("Dinov2Model", VISION),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", VISION),
    "dinov3_vit": ("DINOv3ViTModel", VISION),
    "dpt": ("DPTModel", {**VISION, "backbone_out_indices": [0], "is_hybrid": False}),
    "hubert": ("HubertModel", SOUND),
    "ijepa": ("IJepaModel", VISION),
    "metaclip_2": ("MetaClip2Model", TEXT_AND_PICTURE),
    "sew": ("SEWModel", {**SOUND, "squeeze_factor": 1}),
    "siglip_vision": ("SiglipVisionModel", VISION),
    "swin": ("SwinModel", {"image_size": 8, "patch_size": 2, "embed_dim": 8, "depths": [1], "num_heads": [2],
                           "window_size": 2}),
    "unispeech": ("UniSpeechModel", SOUND),
    "unispeech-sat": ("UniSpeechSatModel", SOUND),
    "videomae": ("VideoMAEModel", {**VISION, "num_frames": 2, "tubelet_size": 2}),
    "vit_msn": ("ViTMSNModel", VISION),
    "vivit": ("VivitModel", {**VISION, "num_frames": 2, "tubelet_size": [2, 4, 4]}),
    "wav2vec2": ("Wav2Vec2Model", SOUND),
    "yolos": ("YolosModel", {**VISION, "image_size": [8, 8], "num_detection_tokens": 2}),
}  # fmt: skip


def make(name: str, **changes: Any) -> torch.nn.Module:
    """The tiny model of a family, in evaluation and with its own eager attention unless `changes` say otherwise."""
    import transformers

    more = {**MORE_DECODERS, **INDEXED, **MORE_TRANSLATORS, **MORE_READERS, **MORE_OTHERS, **REFUSED}
    cls_name, config = {**DECODERS, **TRANSLATORS, **READERS, **OTHERS, **more}[name]
    if name in more and not hasattr(transformers, cls_name):
        pytest.skip(f"this release of transformers has no {cls_name}")
    cls = getattr(transformers, cls_name)
    torch.manual_seed(0)
    special = {} if name in {**OTHERS, **MORE_OTHERS} else SPECIAL
    return cls(cls.config_class(**{**special, "attn_implementation": "eager", **config, **changes})).eval()


def checkpointing_option() -> str:
    """The training argument that switches checkpointing on, which newer releases of transformers call otherwise."""
    import transformers

    names = ("activation_checkpointing", "gradient_checkpointing")
    return next(name for name in names if hasattr(transformers.PreTrainedModel, f"{name}_enable"))


def enable_checkpointing(model: Any, reentrant: bool) -> None:
    """Have the layers of a model computed again in the backward pass instead of kept."""
    getattr(model, f"{checkpointing_option()}_enable")({"use_reentrant": reentrant})
