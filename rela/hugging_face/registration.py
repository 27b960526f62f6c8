"""Our attentions and models made known to `transformers`: its Auto classes and pipelines."""

from __future__ import annotations


def register() -> None:
    """Let `transformers` load our models, and its own whose attention was exchanged; more than once does no harm."""
    require_transformers()
    from rela.attention.pretrained import register_transformers

    register_transformers()
    register_models()


def require_transformers() -> None:
    """An ImportError that names the extra, where `transformers` is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ImportError(
            "models of Hugging Face need transformers: pip install 'rela-attention[hf]'", name="transformers"
        ) from None


def register_models() -> None:
    """Let AutoConfig, AutoTokenizer, AutoModel, AutoModelForSeq2SeqLM and `pipeline` find our models."""
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.pipelines import PIPELINE_REGISTRY

    from rela.hugging_face.configuration import RelaConfig
    from rela.hugging_face.model import RelaForConditionalGeneration
    from rela.hugging_face.pipeline import TASK, TranslationPipeline
    from rela.hugging_face.tokenizer import RelaTokenizer

    AutoConfig.register(RelaConfig.model_type, RelaConfig, exist_ok=True)
    AutoModel.register(RelaConfig, RelaForConditionalGeneration, exist_ok=True)
    AutoModelForSeq2SeqLM.register(RelaConfig, RelaForConditionalGeneration, exist_ok=True)
    AutoTokenizer.register(RelaConfig, RelaTokenizer, exist_ok=True)
    if TASK not in PIPELINE_REGISTRY.supported_tasks:
        PIPELINE_REGISTRY.register_pipeline(TASK, TranslationPipeline, AutoModelForSeq2SeqLM, type="text")
