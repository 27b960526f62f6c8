"""Which search serves a model: the one that stays on the device, or the reference, and why."""

from __future__ import annotations

import contextlib
import os

import torch

from rela.config import DecodeConfig
from rela.decoding.engines.gpu_network import Network, why_not_fast
from rela.decoding.engines.gpu_search import DeviceSearch
from rela.decoding.engines.int8 import QuantisedTransformer
from rela.decoding.engines.int8_linear import why_not_int8
from rela.device import has_bf16
from rela.model.transformer import Transformer

# Candidates are chosen one maximum at a time, which wide beams would make long.
MAX_BEAM = 16


class Engine:
    """Chooses the search for a model and keeps the last one made, with its buffers and graphs."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.weights = model, list(model.parameters())
        self.asked: tuple[DecodeConfig, tuple] | None = None
        self.made: tuple[tuple, DeviceSearch] | None = None
        self.quantised: tuple[tuple, QuantisedTransformer] | None = None

    def search_for(self, decode: DecodeConfig) -> DeviceSearch | None:
        """The search on the device, or None where the reference serves; engine="graphs" raises the reason instead."""
        if decode.engine == "reference":
            return None
        versions = self.versions()
        if self.made is not None and self.asked == (decode, versions):
            return self.made[1]
        reason = why_not_graphs(self.model, decode)
        if decode.engine == "graphs" and reason is not None:
            raise ValueError(f'engine is "graphs", which cannot serve here: {reason}')
        if reason is not None:
            return None
        dtype = self.precision(decode)
        key = decode.beam, decode.length_penalty, dtype, versions
        if self.made is None or self.made[0] != key:
            self.made = None  # its memory is free before the next one is made
            self.made = key, DeviceSearch(Network(self.model, dtype), decode.beam, decode.length_penalty)
        self.asked = decode, versions
        return self.made[1]

    def uses_graphs(self, decode: DecodeConfig) -> bool:
        """Whether search stays on the device."""
        return decode.engine != "reference" and why_not_graphs(self.model, decode) is None

    def versions(self) -> tuple:
        """What changes whenever a weight is written to; tensors made for inference count nothing, and are not trained."""
        return tuple([(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in self.weights])

    def reference(self, decode: DecodeConfig) -> Transformer | QuantisedTransformer:
        """The model as the reference steps it: as it is, or a copy in int8, made once."""
        if decode.precision != "int8":
            return self.model
        if reason := why_not_int8(device_of(self.model)):
            raise ValueError(f'precision is "int8", which cannot serve here: {reason}')
        versions = self.versions()
        if self.quantised is None or self.quantised[0] != versions:
            self.quantised = versions, QuantisedTransformer(self.model)
        return self.quantised[1]

    def precision(self, decode: DecodeConfig) -> torch.dtype:
        if decode.precision == "auto":
            return torch.bfloat16 if has_bf16(device_of(self.model)) else torch.float32
        return torch.bfloat16 if decode.precision == "bf16" else torch.float32

    def reference_precision(self, decode: DecodeConfig) -> contextlib.AbstractContextManager:
        """Autocast where the reference is asked for in bfloat16."""
        if decode.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(device_of(self.model).type, torch.bfloat16)


def why_not_graphs(model: Transformer, decode: DecodeConfig) -> str | None:
    """The first reason why search cannot stay on the device, or None if it can."""
    if decode.precision == "int8":
        return "it computes in bf16 or fp32, and int8 is asked for"
    if decode.sampling:
        return "sampling draws its random numbers on the host"
    if decode.beam > MAX_BEAM:
        return f"it takes beams up to {MAX_BEAM}, and this one is {decode.beam}"
    device = device_of(model).type
    # Triton's interpreter is for tests: correct, and slower than the reference.
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and decode.engine == "graphs"
    if device != "cuda" and not interpreted:
        return f"it runs on a CUDA device, and the model is on {device}"
    return why_not_fast(model)


def device_of(model: Transformer) -> torch.device:
    """Where a model is; asked of a buffer, since weights may be packed away (int8)."""
    return model.target_embedding.positions.device
