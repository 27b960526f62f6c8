"""Fused Triton kernels: tensors in, tensors out. Importing this package imports no Triton; its modules do.

The letters of tensors and the prefixes of names are explained in rela/attention/__init__.py.
"""
