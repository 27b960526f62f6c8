"""Fused rectified linear attention: relu(q kᵀ · scale − θ) v without ever forming the weights.

Tensors in, tensors out. Everything here is differentiable unless it says otherwise, works under torch.compile and in
CUDA graphs, and accepts any strides whose last one is 1.
"""

import torch
from torch import Tensor

import rela.kernels.attention.operators  # noqa: F401  registers torch.ops.rela
from rela.kernels.attention.activations import ACTIVATIONS
from rela.kernels.attention.problem import LARGEST_HEAD, TYPES
from rela.packing import Packing

MOST_DECODE_ROWS = 64  # queries of the heads that share a key head


def relu_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    key_lengths: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor = 0,
    deterministic: bool = False,
) -> Tensor:
    """act(q kᵀ · scale − θ) v for q [B, H, T, D] and k, v [B, Hk, S, D], where Hk divides H.

    Returns the context [B, H, T, D]. A query t sees key s if s < key_lengths[b], if `causal` implies s ≤ t + S − T,
    and if the boolean `mask`, four dimensions that are 1 or those of [B, H, T, S], is True there; hidden keys weigh
    nothing, and a query that sees nothing gets zeros. `threshold` is θ [H]. Dropout is a pure function of the seed
    (an int, or an int64 scalar on the device), batch, head, query and key. With `deterministic` the gradients are the
    same to the last bit each time.
    """
    _check(q, k, v, activation, threshold, dropout, 4)
    (B, H, T, _), S = q.shape, k.shape[2]
    _check_lengths(key_lengths, B)
    _check_mask(mask, (B, H, T, S))
    return torch.ops.rela.relu_attention(
        *map(_rows, (q, k, v)),
        _flat(threshold),
        _flat(key_lengths),
        mask,
        None,
        None,
        T,
        S,
        _seed(seed, dropout, q),
        scale,
        activation,
        causal,
        dropout,
        deterministic or torch.are_deterministic_algorithms_enabled(),
    )


def relu_attention_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packing,
    keys: Packing,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor = 0,
    deterministic: bool = False,
) -> Tensor:
    """The same over packed sequences, q [N, H, D] and k, v [M, Hk, D], without computing any padding; gives [N, H, D].

    Rows after the last sequence get zeros and give zero gradients. The longest lengths only choose the tiles: too small
    a number costs speed, not correctness.
    """
    _check(q, k, v, activation, threshold, dropout, 3)
    cu_q, cu_k = queries.cu_seqlens, keys.cu_seqlens
    if cu_q.dtype != torch.int32 or cu_q.ndim != 1 or not len(cu_q):
        raise ValueError(f"cu_seqlens of queries must be a row of int32, got {_describe(cu_q)}")
    if cu_k.dtype != torch.int32 or cu_k.shape != cu_q.shape:
        raise ValueError(f"cu_seqlens of keys must be like that of queries, {len(cu_q)} int32, got {_describe(cu_k)}")
    # one batch element whose rows are all sequences
    out = torch.ops.rela.relu_attention(
        *(_rows(x).transpose(0, 1).unsqueeze(0) for x in (q, k, v)),
        _flat(threshold),
        None,
        None,
        cu_q.contiguous(),
        cu_k.contiguous(),
        queries.max_seqlen,
        keys.max_seqlen,
        _seed(seed, dropout, q),
        scale,
        activation,
        causal,
        dropout,
        deterministic or torch.are_deterministic_algorithms_enabled(),
    )
    return out.squeeze(0).transpose(0, 1)


def relu_attention_with_statistics(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "relu",
    causal: bool = False,
    threshold: Tensor | None = None,
    key_lengths: Tensor | None = None,
    mask: Tensor | None = None,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """relu_attention's output and, from the same pass, three [B, H, T] facts about each row of weights.

    They are the number of non-zero weights (int32), the index of the largest weight, the first of equals and −1 on a
    null row (int32), and that weight (float32, 0 on a null row). Only the output is differentiable.
    """
    _check(q, k, v, activation, threshold, 0.0, 4)
    (B, H, T, _), S = q.shape, k.shape[2]
    _check_lengths(key_lengths, B)
    _check_mask(mask, (B, H, T, S))
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    return torch.ops.rela.relu_attention_statistics(
        *map(_rows, (q, k, v)), _flat(threshold), _flat(key_lengths), mask, scale, activation, causal, deterministic
    )


def relu_attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    activation: str = "relu",
    threshold: Tensor | None = None,
    key_lengths: Tensor | None = None,
) -> Tensor:
    """relu_attention for a few queries and many keys, without gradients: q [B, H, T, D] with T small, often 1.

    The keys are split over the whole device, and rows of V to which no head of a group gives weight are not read.
    Should the queries be many after all, this is `relu_attention`.
    """
    _check(q, k, v, activation, threshold, 0.0, 4)
    _check_lengths(key_lengths, q.shape[0])
    if q.shape[2] * q.shape[1] // k.shape[1] > MOST_DECODE_ROWS:
        with torch.no_grad():
            return relu_attention(
                q, k, v, scale=scale, activation=activation, threshold=threshold, key_lengths=key_lengths
            )
    return torch.ops.rela.relu_attention_decode(
        *map(_rows, (q, k, v)), _flat(threshold), _flat(key_lengths), scale, activation
    )


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _flat(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _seed(seed: int | Tensor, dropout: float, q: Tensor) -> Tensor | None:
    if dropout == 0.0:
        return None
    if isinstance(seed, Tensor):
        return seed
    return torch.full((), seed, dtype=torch.int64, device=q.device)


def _describe(x: Tensor) -> str:
    return f"{list(x.shape)} of {x.dtype}"


def _check(
    q: Tensor, k: Tensor, v: Tensor, activation: str, threshold: Tensor | None, dropout: float, dimensions: int
) -> None:
    head_axis = dimensions - 3 if dimensions == 4 else 1
    if not q.ndim == k.ndim == v.ndim == dimensions:
        raise ValueError(f"q, k and v must have {dimensions} dimensions, got {q.ndim}, {k.ndim} and {v.ndim}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in TYPES:
        raise TypeError(f"q, k and v must share one of float32, float16, bfloat16; got {q.dtype}, {k.dtype}, {v.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"k and v must have the same shape, got {list(k.shape)} and {list(v.shape)}")
    if q.shape[-1] != k.shape[-1] or not 1 <= q.shape[-1] <= LARGEST_HEAD:
        raise ValueError(f"q and k must share a head size of 1 … {LARGEST_HEAD}, got {q.shape[-1]} and {k.shape[-1]}")
    if dimensions == 4 and q.shape[0] != k.shape[0]:
        raise ValueError(f"q and k must have the same batch size, got {q.shape[0]} and {k.shape[0]}")
    heads, key_heads = q.shape[head_axis], k.shape[head_axis]
    if not key_heads or heads % key_heads:
        raise ValueError(f"the {key_heads} heads of k must divide the {heads} heads of q")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    if threshold is not None and threshold.shape != (heads,):
        raise ValueError(f"threshold must be one number for each of {heads} heads, got {_describe(threshold)}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must lie in [0, 1), got {dropout}")


def _check_lengths(key_lengths: Tensor | None, B: int) -> None:
    if key_lengths is None:
        return
    if key_lengths.shape != (B,) or key_lengths.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"key_lengths must be {B} integers, int32 or int64, got {_describe(key_lengths)}")


def _check_mask(mask: Tensor | None, shape: tuple[int, int, int, int]) -> None:
    if mask is None:
        return
    broadcasts = mask.ndim == 4 and all(m in (1, n) for m, n in zip(mask.shape, shape, strict=True))
    if mask.dtype != torch.bool or not broadcasts:
        raise ValueError(f"mask must be bool and broadcast to {list(shape)}, got {_describe(mask)}")
