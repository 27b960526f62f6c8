"""Tables for the Hopper kernels: intervals of rows, words of a mask and random numbers of dropout.

The plain kernels compute all this as they go. The kernels that fill the tables are plain Triton and take some
microseconds each.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from rela.kernels.attention.problem import Problem, ceil_div
from rela.kernels.attention.scores import dropout_key, key_number, query_number, seeing_queries, seen_keys
from rela.kernels.hopper.dispatch import has_descriptor
from rela.kernels.launch import Launch

TILE = 128  # tables of numbers end with a whole tile; columns of a mask in a group of words
WORDS = 4  # of 32 bits for the columns of a tile
BLOCK = 1024
ROWS = 64  # of a mask for one program


def has_intervals(problem: Problem) -> bool:
    """Whether intervals come from a table: all but causality alone, which the kernels work out."""
    limits = problem.queries, problem.key_lengths, problem.key_starts, problem.left, problem.right
    return any(limit is not None for limit in limits)


def intervals(problem: Problem, of_keys: bool) -> Tensor | None:
    """[B, 2, T]: the first key each query sees, and one past the last; `of_keys` [B, 2, S]: queries that see a key.

    Both rows ascend, empty intervals included, so that the first and the last row of a tile tell what the tile sees.
    No interval begins behind the length of the keys.
    """
    run = problem.memo.get(("intervals", of_keys))
    if run is None:
        run = problem.memo[("intervals", of_keys)] = planned_intervals(problem, of_keys)
    return run(problem)


def planned_intervals(problem: Problem, of_keys: bool) -> Callable[[Problem], Tensor | None]:
    """A function for the intervals of this problem, and of all that differ from it in their numbers alone."""
    if not has_intervals(problem):
        return lambda problem: None
    (B, _, T, _), S, device = problem.q.shape, problem.k.shape[2], problem.q.device
    size = B, 2, S if of_keys else T
    constants = {"OF_KEYS": of_keys, "CAUSAL": problem.causal, "BLOCK": BLOCK}
    start = Launch(intervals_kernel, (ceil_div(size[2], BLOCK), B), constants)
    sequences = 0 if problem.queries is None else problem.queries.sentences
    fixed = problem.left, problem.right, T, S, sequences, sequences.bit_length()

    def run(problem: Problem) -> Tensor:
        table = torch.empty(size, dtype=torch.int32, device=device)
        start(table, problem.cu_q, problem.cu_k, problem.key_lengths, problem.key_starts, *fixed)
        return table

    return run


def varies(mask: Tensor) -> tuple[bool, bool]:
    """Whether a mask differs from batch element to batch element, and from head to head."""
    of_batch, of_heads = (n > 1 and stride != 0 for n, stride in zip(mask.shape[:2], mask.stride()[:2], strict=True))
    return of_batch, of_heads


def repeats(problem: Problem) -> tuple[int, int]:
    """How far a step over batch elements, and one over heads, goes in the mask: 0 where it repeats.

    In matrices of a boolean mask, along its own axis in a float mask.
    """
    assert problem.mask is not None
    of_batch, of_heads = varies(problem.mask)
    matrices = problem.mask.shape[1] if of_heads and not problem.biased else 1
    return matrices if of_batch else 0, 1 if of_heads else 0


def addressable_bias(problem: Problem) -> Tensor | None:
    """A float mask as the tensor memory accelerator can read it, [B or 1, H or 1, T, S]; a copy where it must be."""
    mask = problem.mask
    if mask is None or not problem.biased:
        return None
    kept = problem.memo.get("bias")
    if kept is None:
        once = mask
        for axis, differs in enumerate(varies(mask)):
            if not differs:
                once = once.narrow(axis, 0, 1)
        kept = problem.memo["bias"] = once.shape, once.stride(), has_descriptor(once)
    shape, strides, fits = kept
    if mask.shape != shape:
        mask = mask.as_strided(shape, strides)
    if fits:
        return mask
    S = shape[3]
    rows = torch.empty(*shape[:3], ceil_div(S, 8) * 8, dtype=mask.dtype, device=mask.device)
    return rows[..., :S].copy_(mask)


def mask_words(problem: Problem, of_keys: bool) -> Tensor | None:
    """The bits of a boolean mask, [matrices, tiles of keys, T, 4] or, `of_keys`, [matrices, tiles of queries, S, 4].

    Of the columns 8 j + 2 l + c of a tile, word l has those with c = 0 in its bits 0 … 15 by j, and those with c = 1
    in its bits 16 … 31: the columns that one thread holds in a row of an accumulator.
    """
    mask = problem.mask
    if mask is None or problem.biased:
        return None
    kept = problem.memo.get(("mask words", of_keys))
    if kept is None:
        T, S = problem.q.shape[2], problem.k.shape[2]
        rows, columns = (S, T) if of_keys else (T, S)
        step_b, step_h = repeats(problem)
        matrices = (mask.shape[0] if step_b else 1) * (mask.shape[1] if step_h else 1)
        n_c = ceil_div(columns, TILE)
        strides = [0 if size == 1 else stride for size, stride in zip(mask.shape, mask.stride(), strict=True)]
        sizes = {"rows": rows, "columns": columns, "heads": mask.shape[1] if step_h else 1}
        sizes |= {"stride_b": strides[0], "stride_h": strides[1], "TILE": TILE, "ROWS": ROWS}
        sizes |= {"stride_row": strides[3 if of_keys else 2], "stride_column": strides[2 if of_keys else 3]}
        start = Launch(words_kernel, (ceil_div(rows, ROWS), n_c, matrices), sizes)
        kept = problem.memo[("mask words", of_keys)] = start, (matrices, n_c, rows, WORDS)
    start, size = kept
    words = torch.empty(size, dtype=torch.int32, device=mask.device)
    start(words, mask.view(torch.uint8))
    return words


def dropout_numbers(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """Random numbers of the queries [B, H, 1, ≥ T] and of the keys [B, H, 1, ≥ S]; products decide what is dropped."""
    if problem.seed is None or problem.numbers is not None:
        return problem.numbers
    kept = problem.memo.get("dropout numbers")
    if kept is None:
        (B, H, T, _), S = problem.q.shape, problem.k.shape[2]
        n_q, n_k = (ceil_div(rows, TILE) * TILE for rows in (T, S))
        constants = {"H": H, "n_q": n_q, "n_k": n_k, "BLOCK": BLOCK}
        start = Launch(numbers_kernel, (ceil_div(max(n_q, n_k), BLOCK), B * H), constants)
        kept = problem.memo["dropout numbers"] = start, (B, H, 1, n_q), (B, H, 1, n_k)
    start, queries, keys = kept
    of_queries = torch.empty(queries, dtype=torch.int32, device=problem.q.device)
    of_keys = torch.empty(keys, dtype=torch.int32, device=problem.q.device)
    start(of_queries, of_keys, problem.seed)
    problem.numbers = of_queries, of_keys
    return problem.numbers


@triton.jit(do_not_specialize=["left", "right", "T", "S", "sequences", "search_steps"])
def intervals_kernel(
    table,
    cu_q,
    cu_k,
    key_lengths,
    key_starts,
    left,
    right,
    T,
    S,
    sequences,
    search_steps,
    OF_KEYS: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    o_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i_b = tl.program_id(1)
    if OF_KEYS:
        rows = S
        b_begin, b_end = seeing_queries(
            o_row, i_b, T, S, sequences, cu_q, cu_k, search_steps, None, None, left, right, CAUSAL
        )
        b_end = tl.maximum(b_end, 0)
        b_begin = tl.minimum(b_begin, b_end)
        # a hidden key: an empty interval at that side where its neighbours' go on
        if key_lengths is not None:
            b_begin = tl.where(o_row < tl.load(key_lengths + i_b).to(tl.int32), b_begin, b_end)
        if key_starts is not None:
            b_end = tl.where(o_row >= tl.load(key_starts + i_b).to(tl.int32), b_end, b_begin)
    else:
        rows = T
        b_begin, b_end = seen_keys(
            o_row, i_b, T, S, sequences, cu_q, cu_k, search_steps, key_lengths, key_starts, left, right, CAUSAL
        )
        if key_lengths is not None:
            b_begin = tl.minimum(b_begin, tl.load(key_lengths + i_b).to(tl.int32))
        b_end = tl.maximum(b_begin, b_end)
    table += i_b.to(tl.int64) * 2 * rows
    tl.store(table + o_row, b_begin, mask=o_row < rows)
    tl.store(table + rows + o_row, b_end, mask=o_row < rows)


@triton.jit(do_not_specialize=["rows", "columns", "heads"])
def words_kernel(
    words,
    mask,
    rows,
    columns,
    heads,
    stride_b,
    stride_h,
    stride_row,
    stride_column,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    i_c = tl.program_id(1)
    i_m = tl.program_id(2)
    o_row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o_word = tl.arange(0, 4)
    mask += (i_m // heads).to(tl.int64) * stride_b + (i_m % heads).to(tl.int64) * stride_h
    p_row = mask + o_row[:, None].to(tl.int64) * stride_row
    b_words = tl.zeros([ROWS, 4], dtype=tl.int32)
    for i in tl.static_range(TILE // 4):
        o_column = i_c * TILE + i // 2 * 8 + o_word[None, :] * 2 + i % 2
        m_there = (o_row < rows)[:, None] & (o_column < columns)
        b_seen = tl.load(p_row + o_column.to(tl.int64) * stride_column, mask=m_there, other=0)
        b_words |= (b_seen != 0).to(tl.int32) << (i // 2 + i % 2 * 16)
    p_words = words + (i_m.to(tl.int64) * tl.num_programs(1) + i_c) * rows * 4
    tl.store(p_words + o_row[:, None] * 4 + o_word[None, :], b_words, mask=(o_row < rows)[:, None])


@triton.jit(do_not_specialize=["H", "n_q", "n_k"])
def numbers_kernel(of_queries, of_keys, seed, H, n_q, n_k, BLOCK: tl.constexpr):
    i_bh = tl.program_id(1)
    key_0, key_1 = dropout_key(seed, i_bh // H, i_bh % H)
    o_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_q = query_number(key_0, o_row).to(tl.int32, bitcast=True)
    b_k = key_number(key_1, o_row).to(tl.int32, bitcast=True)
    tl.store(of_queries + i_bh.to(tl.int64) * n_q + o_row, b_q, mask=o_row < n_q)
    tl.store(of_keys + i_bh.to(tl.int64) * n_k + o_row, b_k, mask=o_row < n_k)
