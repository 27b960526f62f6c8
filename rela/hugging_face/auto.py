"""Importing this module makes our models known to `transformers`, as `rela.register_transformers()` does."""

from rela.hugging_face.registration import register

register()
