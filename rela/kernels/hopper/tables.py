"""Tables for the Hopper kernels: intervals of packed rows and random numbers of dropout, which the plain ones compute.

The kernels that fill them are plain Triton and take some two microseconds each.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.attention.scores import dropout_key, key_number, query_number, seeing_queries, seen_keys
from rela.kernels.launch import on_device

TILE = 128  # tables of numbers end with a whole tile
BLOCK = 1024


def intervals(problem: Problem, of_keys: bool) -> Tensor | None:
    """[2, T]: the first key each packed query sees, and one past the last; `of_keys` [2, S]: queries that see a key.

    Both rows ascend, empty intervals included, so that the first and the last row of a tile tell what the tile sees.
    """
    if problem.queries is None:
        return None
    rows = (problem.k if of_keys else problem.q).shape[2]
    table = torch.empty(2, rows, dtype=torch.int32, device=problem.q.device)
    sequences = problem.queries.sentences
    with on_device(table):
        intervals_kernel[(ceil_div(rows, BLOCK),)](
            table, problem.cu_q, problem.cu_k, rows, sequences, sequences.bit_length(), of_keys, problem.causal, BLOCK
        )
    return table


def dropout_numbers(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """Random numbers of the queries [B, H, 1, ≥ T] and of the keys [B, H, 1, ≥ S]; products decide what is dropped."""
    if problem.seed is None:
        return None
    (B, H, T, _), S = problem.q.shape, problem.k.shape[2]
    sizes = [ceil_div(rows, TILE) * TILE for rows in (T, S)]
    of_queries, of_keys = (torch.empty(B, H, 1, n, dtype=torch.int32, device=problem.q.device) for n in sizes)
    with on_device(of_queries):
        numbers_kernel[(ceil_div(max(sizes), BLOCK), B * H)](of_queries, of_keys, problem.seed, H, *sizes, BLOCK)
    return of_queries, of_keys


@triton.jit(do_not_specialize=["rows", "sequences", "search_steps"])
def intervals_kernel(
    table, cu_q, cu_k, rows, sequences, search_steps, OF_KEYS: tl.constexpr, CAUSAL: tl.constexpr, BLOCK: tl.constexpr
):
    o_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if OF_KEYS:
        b_begin, b_end = seeing_queries(
            o_row, 0, 0, 0, sequences, cu_q, cu_k, search_steps, None, None, None, None, CAUSAL
        )
        b_begin = tl.minimum(b_begin, b_end)
    else:
        b_begin, b_end = seen_keys(o_row, 0, 0, 0, sequences, cu_q, cu_k, search_steps, None, None, None, None, CAUSAL)
        b_end = tl.maximum(b_begin, b_end)
    tl.store(table + o_row, b_begin, mask=o_row < rows)
    tl.store(table + rows + o_row, b_end, mask=o_row < rows)


@triton.jit(do_not_specialize=["H", "n_q", "n_k"])
def numbers_kernel(of_queries, of_keys, seed, H, n_q, n_k, BLOCK: tl.constexpr):
    i_bh = tl.program_id(1)
    key_0, key_1 = dropout_key(seed, i_bh // H, i_bh % H)
    o_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_q = query_number(key_0, o_row).to(tl.int32, bitcast=True)
    b_k = key_number(key_1, o_row).to(tl.int32, bitcast=True)
    tl.store(of_queries + i_bh.to(tl.int64) * n_q + o_row, b_q, mask=o_row < n_q)
    tl.store(of_keys + i_bh.to(tl.int64) * n_k + o_row, b_k, mask=o_row < n_k)
