"""Our models as models of `transformers`, and back: configuration, model, tokenizer, pipeline, conversion.

`rela.register_transformers()`, or `import rela.hugging_face.auto`, makes them known to the Auto classes. Needs the
extra: pip install 'rela-attention[hf]'.
"""
