"""Which engine serves a model: the GPU engine, int8 on a CPU, or the reference; and why."""

from __future__ import annotations

import contextlib

import torch

from rela.config import DecodeConfig
from rela.decoding.engines.gpu_network import GpuNetwork, why_not_network
from rela.decoding.engines.gpu_search import GpuEngine
from rela.decoding.engines.int8 import Int8Engine
from rela.decoding.engines.int8_linear import why_not_int8
from rela.decoding.engines.reference import ReferenceEngine, device_of
from rela.device import has_bf16, triton_is_interpreted
from rela.model.transformer import Transformer

# Candidates are chosen one maximum at a time, which wide beams would make long.
MAX_BEAM = 16

Versions = tuple[tuple[int, int], ...]
"""Address and version of every weight: what changes whenever a weight is written to."""


class Engines:
    """The engines of one model, each made when it is first asked for, and again after its weights have changed."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.weights = model, list(model.parameters())
        self.reference = ReferenceEngine(model)
        self.asked: tuple[DecodeConfig, Versions] | None = None
        self.gpu: tuple[tuple, GpuEngine] | None = None
        self.int8: tuple[Versions, Int8Engine] | None = None

    def gpu_engine(self, decode: DecodeConfig) -> GpuEngine | None:
        """The GPU engine, or None where another serves; engine="graphs" raises the reason instead."""
        if decode.engine == "reference":
            return None
        versions = self.versions()
        if self.gpu is not None and self.asked == (decode, versions):
            return self.gpu[1]
        reason = why_not_graphs(self.model, decode)
        if decode.engine == "graphs" and reason is not None:
            raise ValueError(f'engine is "graphs", which cannot serve here: {reason}')
        if reason is not None:
            return None
        dtype = self.gpu_precision(decode)
        key = decode.beam, decode.length_penalty, dtype, versions
        if self.gpu is None or self.gpu[0] != key:
            self.gpu = None  # its memory is free before the next one is made
            self.gpu = key, GpuEngine(GpuNetwork(self.model, dtype), decode.beam, decode.length_penalty)
        self.asked = decode, versions
        return self.gpu[1]

    def uses_graphs(self, decode: DecodeConfig) -> bool:
        """Whether the GPU engine serves."""
        return decode.engine != "reference" and why_not_graphs(self.model, decode) is None

    def stepwise_engine(self, decode: DecodeConfig) -> ReferenceEngine:
        """The engine that search drives step by step and that scores: the reference, or int8."""
        if decode.precision != "int8":
            return self.reference
        if reason := why_not_int8(device_of(self.model)):
            raise ValueError(f'precision is "int8", which cannot serve here: {reason}')
        versions = self.versions()
        if self.int8 is None or self.int8[0] != versions:
            self.int8 = versions, Int8Engine(self.model)
        return self.int8[1]

    def versions(self) -> Versions:
        """Those of the weights; tensors made for inference count nothing, and are not trained."""
        return tuple([(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in self.weights])

    def gpu_precision(self, decode: DecodeConfig) -> torch.dtype:
        if decode.precision == "auto":
            return torch.bfloat16 if has_bf16(device_of(self.model)) else torch.float32
        return torch.bfloat16 if decode.precision == "bf16" else torch.float32

    def autocast(self, decode: DecodeConfig) -> contextlib.AbstractContextManager:
        """Autocast where the reference is asked for in bfloat16."""
        if decode.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(device_of(self.model).type, torch.bfloat16)


def why_not_graphs(model: Transformer, decode: DecodeConfig) -> str | None:
    """The first reason why the GPU engine cannot serve, or None if it can."""
    if decode.precision == "int8":
        return "it computes in bf16 or fp32, and int8 is asked for"
    if decode.sampling:
        return "sampling draws its random numbers on the host"
    if decode.min_length or decode.no_repeat_ngram:
        return "it forbids no tokens, as min_length and no_repeat_ngram want"
    if decode.beam > MAX_BEAM:
        return f"it takes beams up to {MAX_BEAM}, and this one is {decode.beam}"
    device = device_of(model).type
    # Triton's interpreter is for tests: correct, and slower than the reference.
    interpreted = triton_is_interpreted() and decode.engine == "graphs"
    if device != "cuda" and not interpreted:
        return f"it runs on a CUDA device, and the model is on {device}"
    return why_not_network(model)
