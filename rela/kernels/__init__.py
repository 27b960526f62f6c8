"""Fused Triton kernels: tensors in, tensors out. Importing this package imports no Triton; its modules do."""
