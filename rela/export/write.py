"""A model as a folder for another runtime: two graphs, the subwords and a few settings; checked before it is kept."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

import rela
from rela.config import Config
from rela.data.subwords import BOS, EOS, UNK
from rela.errors import RunFailed
from rela.export.graphs import DecoderStepGraph, EncoderGraph
from rela.export.onnx_translator import CONSTRAINTS, DECODER_STEP, ENCODER, SETTINGS, SUBWORDS, open_session
from rela.files import checksum, replacing_folder
from rela.model.folder import check_output_folder, find_model, load_folder
from rela.model.transformer import Transformer

FORMATS = ("onnx", "torch-export", "aot")
LARGEST_BATCH = 65_536
"""Graphs take any number of sentences up to this."""
TOLERANCE = 1e-3
"""How far log-probabilities of an exported graph may be off: sums in float32 have another order there, no more."""

EXPORTED = re.compile(rf"({ENCODER}|{DECODER_STEP})\.(onnx|onnx\.data|pt2)|{re.escape(SUBWORDS)}|{re.escape(SETTINGS)}")
"""The files of an exported model."""

Graph = Callable[..., tuple[Tensor, ...]]
Inputs = tuple[Tensor, ...]


def export_model(folder: str | Path, format: str, out: str | Path) -> Path:
    """The folder `out` with the model of `folder` in a format of FORMATS; an earlier export there is replaced."""
    if format not in FORMATS:
        raise ValueError(f"format is {format!r}; wanted one of {', '.join(FORMATS)}")
    out = Path(out)
    check_output_folder(out, find_model(folder), SETTINGS, EXPORTED)
    if format == "onnx":
        require_onnx()
    model, config, subwords = load_folder(folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(out) as fresh:
        graphs: dict[str, EncoderGraph | DecoderStepGraph] = {}
        graphs |= {ENCODER: EncoderGraph(model), DECODER_STEP: DecoderStepGraph(model)}
        written = {name: write_graph(graph, config, format, fresh / name) for name, graph in graphs.items()}
        check_graphs(model, written[ENCODER], written[DECODER_STEP])
        (fresh / SUBWORDS).write_bytes(subwords)
        files = {file.name: checksum(file) for file in sorted(fresh.iterdir())}
        settings = {**settings_of(config, format), "sha256": files}
        (fresh / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return out


def settings_of(config: Config, format: str) -> dict[str, Any]:
    """What a translator must know besides the graphs."""
    return {
        "format": format,
        "rela": rela.__version__,
        "vocabulary_size": config.model.vocabulary_size,
        "max_length": config.model.max_length,
        "max_length_ratio": config.decode.max_length_ratio,
        "max_length_extra": config.decode.max_length_extra,
        **{name: getattr(config.decode, name) for name in CONSTRAINTS},
    }


def write_graph(graph: EncoderGraph | DecoderStepGraph, config: Config, format: str, path: Path) -> Graph:
    """Write one graph to `path` with the ending of its format; what was written, as a function to check it by."""
    program = trace(graph, config)
    if format == "torch-export":
        torch.export.save(program, path.with_suffix(".pt2"))
        return program.module()
    return write_onnx(graph, program, path) if format == "onnx" else write_aot(program, path.with_suffix(".pt2"))


@torch.no_grad()
def trace(graph: EncoderGraph | DecoderStepGraph, config: Config) -> ExportedProgram:
    """The graph by torch.export, for any batch, source length and position."""
    shape = config.model
    batch = Dim("batch", min=1, max=LARGEST_BATCH)
    length = Dim("source_length", min=1, max=shape.max_length)
    position = Dim("position", min=0, max=shape.max_length - 1)
    lengths = torch.tensor([5, 3, 2])
    if isinstance(graph, EncoderGraph):
        inputs: Inputs = torch.full((3, 5), EOS), lengths
        sizes: tuple[dict[int, Any], ...] = {0: batch, 1: length}, {0: batch}
    else:
        heads = shape.decoder_layers, 3, shape.heads
        # Four tensors: one that is given twice would become one input.
        states = [torch.zeros(*heads, rows, shape.width // shape.heads) for rows in (4, 4, 5, 5)]
        inputs = torch.full((3,), BOS), *states, lengths
        past, source = {1: batch, 3: position}, {1: batch, 3: length}
        sizes = {0: batch}, past, past, source, source, {0: batch}
    with quiet():
        return torch.export.export(graph, inputs, dynamic_shapes=sizes)


def write_onnx(graph: EncoderGraph | DecoderStepGraph, program: ExportedProgram, path: Path) -> Graph:
    """Write an ONNX file; weights beyond 2 GB, which one file cannot hold, go to FILE.onnx.data beside it."""
    file = path.with_suffix(".onnx")
    with quiet():
        converted = torch.onnx.export(
            program, (), dynamo=True, verbose=False, input_names=graph.inputs, output_names=graph.outputs
        )
        assert converted is not None
        size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict.values())
        converted.save(str(file), external_data=size > 1 << 30)
    session = open_session(file, 1)

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        named = {name: tensor.numpy() for name, tensor in zip(graph.inputs, inputs, strict=True)}
        return tuple(torch.from_numpy(output) for output in session.run(None, named))

    return run


def write_aot(program: ExportedProgram, path: Path) -> Graph:
    """Compile a graph for this machine's CPU; the file holds machine code and weights."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise RunFailed("AOTInductor needs a C++ compiler; wanted g++ or clang++ on the PATH")
    with quiet():
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
        loaded: Graph = torch._inductor.aoti_load_package(str(path))
    return loaded


@torch.no_grad()
def check_graphs(model: Transformer, encoder: Graph, decoder_step: Graph) -> None:
    """Raise RunFailed unless exported graphs give the model's log-probabilities, for several sizes of input."""
    generator = torch.Generator().manual_seed(1)
    own_encoder: Graph = EncoderGraph(model)
    own_step: Graph = DecoderStepGraph(model)
    limit, words = model.config.max_length, model.config.vocabulary_size
    for batch, length in ((1, 1), (2, 7), (5, 18)):
        length = min(length, limit)
        source = torch.randint(UNK, words, (batch, length), generator=generator)
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        states = [(*encode(source, lengths), lengths) for encode in (encoder, own_encoder)]
        layers, _, heads, _, size = states[1][0].shape
        caches = [(torch.zeros(layers, batch, heads, 0, size),) * 2 for _ in states]
        token = torch.full((batch,), BOS)
        for _ in range(min(4, limit)):
            found, own = (
                step(token, *cache, *state)
                for step, cache, state in zip((decoder_step, own_step), caches, states, strict=True)
            )
            error = float((found[0] - own[0]).abs().max())
            if not error <= TOLERANCE:  # also where it is not a number
                raise RunFailed(f"the exported graph's log-probabilities are off by {error:.2g}; nothing was written")
            caches = [(found[1], found[2]), (own[1], own[2])]
            token = own[0].argmax(-1)


def require_onnx() -> None:
    """Raise an ImportError that names the extra where a package for ONNX is missing."""
    from importlib.util import find_spec

    if missing := [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]:
        raise ImportError(f"export to ONNX needs {', '.join(missing)}: pip install 'rela-attention[export]'")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the notes that exporters write for their own developers."""
    import logging

    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
