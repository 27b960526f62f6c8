"""Compile the Hopper kernels for sm_90a without a GPU and print what they take.

A program and not a test, because it needs a Triton that compiles.
Where there is no GPU the tests run Triton's interpreter, which changes the language for the whole process.
"""

import json
from dataclasses import replace

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import create_function_from_signature

from rela.kernels.attention.problem import Problem
from rela.kernels.hopper import backward as hopper_backward
from rela.kernels.hopper import decode as hopper_decode
from rela.kernels.hopper import dispatch as hopper
from rela.kernels.hopper import forward as hopper_forward
from rela.packing import Packing

TARGET = GPUTarget("cuda", 90, 32)


def ahead(kernel, arguments, constants):
    """The kernel compiled for TARGET, as a launch with these arguments would have it."""
    backend = make_backend(TARGET)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = bind(*arguments, sanitize_overflow=False, **constants)
    options, signature, constexprs, attributes = kernel._pack_args(backend, constants, bound, specialization, options)
    source = GluonASTSource(kernel, signature, constexprs, attributes)
    return triton.compile(source, target=TARGET, options=vars(options))


def problem(D: int, dtype: torch.dtype, queries: int = 256) -> Problem:
    x = torch.zeros(1, 2, 256, D, dtype=dtype)
    q, threshold = x[:, :, :queries], torch.zeros(2)
    return Problem(q, x, x, threshold, None, None, None, None, None, 0.125, "relu", True, 0.0)


def documents(D: int = 64) -> tuple[Problem, Tensor, tuple[Tensor, Tensor]]:
    """Packed sequences with dropout, and tables of the right shapes."""
    packing, seed = Packing(torch.tensor([0, 100, 250], dtype=torch.int32), 256), torch.tensor(1)
    dense = problem(D, torch.bfloat16)
    packed = replace(dense, threshold=None, queries=packing, keys=packing, seed=seed, dropout=0.1)
    numbers = torch.zeros(1, 2, 1, 256, dtype=torch.int32)
    return packed, torch.zeros(2, 256, dtype=torch.int32), (numbers, numbers)


def main() -> None:
    """One head size each: eleven compilations are seconds, sixteen are not."""
    p = problem(64, torch.bfloat16)
    forward = ahead(hopper_forward.forward_kernel, *hopper_forward.launch(p, p.q, hopper.forward_tiles(p)))
    kinds = torch.int32, torch.int32, torch.float32
    row = tuple(torch.zeros(1, 2, 256, dtype=kind) for kind in kinds)
    counting = ahead(hopper_forward.forward_kernel, *hopper_forward.launch(p, p.q, hopper.forward_tiles(p), row))
    p = problem(128, torch.float16)
    gradients = (p.q, p.q.float(), p.k, p.v, torch.zeros(1, 2, 4), hopper.gradient_tiles(p))
    backward = ahead(hopper_backward.backward_kernel, *hopper_backward.launch(p, *gradients))
    p, *tables = documents()
    gradients = (p.q, p.q.float(), p.k, p.v, torch.zeros(1, 2, 0), hopper.gradient_tiles(p))
    packed_backward = ahead(hopper_backward.backward_kernel, *hopper_backward.launch(p, *gradients, *tables))
    mask, lengths = torch.ones(1, 1, 256, 256, dtype=torch.bool), torch.tensor([200])
    p = replace(p, key_lengths=lengths, mask=mask, queries=None, keys=None)
    tables = [torch.zeros(1, 2, 256, dtype=torch.int32), tables[1], torch.zeros(1, 2, 256, 4, dtype=torch.int32)]
    masked = ahead(
        hopper_forward.forward_kernel, *hopper_forward.launch(p, p.q, hopper.forward_tiles(p), None, *tables)
    )
    gradients = (p.q, p.q.float(), p.k, p.v, torch.zeros(1, 2, 0), hopper.gradient_tiles(p))
    masked_backward = ahead(hopper_backward.backward_kernel, *hopper_backward.launch(p, *gradients, *tables))
    p = replace(problem(128, torch.bfloat16), mask=torch.zeros(1, 1, 256, 256, dtype=torch.bfloat16))
    gradients = (p.q, p.q.float(), p.k, p.v, torch.zeros(1, 2, 4), hopper.gradient_tiles(p))
    biased = hopper_backward.launch(p, *gradients, bias=p.mask)
    biased_backward = ahead(hopper_backward.backward_kernel, *biased)
    p = problem(256, torch.bfloat16)
    two_parts = ahead(hopper_forward.forward_kernel, *hopper_forward.launch(p, p.q, hopper.forward_tiles(p)))
    packed, *tables = documents(160)
    packed_parts = hopper_forward.launch(packed, packed.q, hopper.forward_tiles(packed), None, *tables)
    three_parts = ahead(hopper_forward.forward_kernel, *packed_parts)
    gradients = packed.q, packed.q.float(), packed.k, packed.v, torch.zeros(1, 2, 0), hopper.gradient_tiles(packed)
    parts = hopper_backward.launch(packed, *gradients, *tables)
    wide_backward = ahead(hopper_backward.kernel_of(hopper.gradient_tiles(packed)), *parts)
    few = problem(128, torch.bfloat16, queries=1)
    decode = ahead(hopper_decode.decode_kernel, *hopper_decode.launch(few, torch.zeros(2, 1, 1, 2, 128), 2))
    rows = {}
    kernels = {"forward": forward, "statistics": counting, "backward": backward, "decode": decode}
    kernels |= {"packed backward": packed_backward, "masked": masked, "masked backward": masked_backward}
    kernels |= {"biased backward": biased_backward, "two parts": two_parts, "three parts": three_parts}
    kernels |= {"wide backward": wide_backward}
    for name, compiled in kernels.items():
        marks = ("wgmma.mma_async", "cvt.rn.relu", "cp.reduce.async.bulk", "cp.async.cg", "0xBB99", "ldmatrix")
        rows[name] = {mark: compiled.asm["ptx"].count(mark) for mark in marks} | {"shared": compiled.metadata.shared}
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
