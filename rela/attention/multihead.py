"""MultiheadAttention: project, split heads, attend, merge, normalise, project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rela.attention import checks, reference
from rela.attention.cache import KVCache
from rela.attention.centring import centre_keys
from rela.attention.dispatch import attend_normalised, normalised
from rela.attention.kinds import Kind, kind_of
from rela.attention.masks import length_mask
from rela.attention.module_checks import check_batch, check_cache, check_inputs, check_is_cache, check_key_and_value
from rela.attention.module_masks import merge_module_masks
from rela.attention.norms import make_norm
from rela.attention.packed import attend_sentences
from rela.attention.plans import Options, Window, check_dense, limits_of
from rela.attention.sparsity import check_target, keep_penalty, threshold_penalty
from rela.device import Device, is_plain_eager
from rela.packing import Packing, allowed_pairs

CHECKED: set[tuple] = set()
"""Layouts of inputs that passed the checks of a module of some sizes: they need not be checked again."""
MOST_CHECKED = 4096


class MultiheadAttention(nn.Module):
    """Multi-head attention of any kind, usable wherever `torch.nn.MultiheadAttention` is.

    The constructor, `forward` and the state dict are those of `torch.nn.MultiheadAttention`; kinds with an
    output norm add `norm.gain` (and `norm.gate`), a learned threshold adds `threshold`. Beyond it: `kind`;
    `threshold`, a number or "learned" for one value a head; `target_sparsity`, for which a training forward
    leaves a penalty behind (`rela.collect_sparsity_penalty`); `num_kv_heads` fewer key and value heads, each
    shared by consecutive query heads; `cache` for decoding step by step; `forward_packed` for sentences
    without padding; `backend` as in `rela.attend`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        kind: str | Kind = "rela-g",
        num_kv_heads: int | None = None,
        threshold: float | str = 0.0,
        target_sparsity: float | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kind, self.dropout, self.batch_first, self.backend = kind_of(kind), dropout, batch_first, backend
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_zero_attn, self.target_sparsity = add_zero_attn, target_sparsity
        self.check_constructor(threshold)
        self.head_dim = embed_dim // num_heads
        kv_width = self.num_kv_heads * self.head_dim
        factory: dict[str, Any] = {"device": device, "dtype": dtype}

        def weight(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(rows, columns, **factory))

        self.one_projection = self.kdim == self.vdim == embed_dim and self.num_kv_heads == num_heads
        if self.one_projection:
            self.in_proj_weight = weight(3 * embed_dim, embed_dim)
            self.register_parameter("q_proj_weight", None)
            self.register_parameter("k_proj_weight", None)
            self.register_parameter("v_proj_weight", None)
        else:
            self.register_parameter("in_proj_weight", None)
            self.q_proj_weight = weight(embed_dim, embed_dim)
            self.k_proj_weight = weight(kv_width, self.kdim)
            self.v_proj_weight = weight(kv_width, self.vdim)
        self.in_proj_bias = nn.Parameter(torch.empty(embed_dim + 2 * kv_width, **factory)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **factory)
        self.bias_k = nn.Parameter(torch.empty(1, 1, kv_width, **factory)) if add_bias_kv else None
        self.bias_v = nn.Parameter(torch.empty(1, 1, kv_width, **factory)) if add_bias_kv else None
        self.norm = make_norm(self.kind.norm, embed_dim, **factory)
        self.threshold: float | nn.Parameter = (
            nn.Parameter(torch.empty(num_heads, **factory)) if threshold == "learned" else float(threshold)
        )
        self.penalty: Tensor | None = None
        self.open_forwards = 0
        # Set by analysis: called with the q and k of each packed forward, which forms no weights itself.
        self.observer: Callable[..., None] | None = None
        # Set by training: the share of the mean key to subtract from packed keys (rela/attention/centring.py).
        self.centring: Tensor | None = None
        self.reset_parameters()

    # nn.TransformerEncoderLayer asks for this before it takes a fused path that computes softmax from our
    # projections without ever calling forward, and nn.TransformerEncoder before it makes nested tensors; False keeps
    # both from doing so. Whether the projections are packed is `one_projection`.
    _qkv_same_embed_dim = False

    def check_constructor(self, threshold: float | str) -> None:
        """Each error names the argument, what came and what was wanted."""
        for name in ("embed_dim", "num_heads", "num_kv_heads", "kdim", "vdim"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}; wanted a whole number above 0")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"num_heads is {self.num_heads}; wanted a divisor of embed_dim {self.embed_dim}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads is {self.num_kv_heads}; wanted a divisor of num_heads {self.num_heads}")
        checks.check_own_threshold(self.kind, threshold)
        checks.check_options(
            self.kind, self.num_heads, 0.0 if threshold == "learned" else float(threshold), self.dropout, self.backend
        )
        check_target(self.target_sparsity, threshold, self.kind)

    def reset_parameters(self) -> None:
        """As torch.nn.MultiheadAttention starts them; a learned threshold starts at zero, where ReLA is."""
        for parameter in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if parameter is not None:
                nn.init.xavier_uniform_(parameter)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        if self.bias_k is not None and self.bias_v is not None:
            nn.init.xavier_normal_(self.bias_k)
            nn.init.xavier_normal_(self.bias_v)
        if isinstance(self.threshold, nn.Parameter):
            nn.init.zeros_(self.threshold)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        cache: KVCache | None = None,
        key_lengths: Tensor | None = None,
        key_starts: Tensor | None = None,
        window: Window | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and, if asked for, the weights; every mask means what it means in torch.nn.MultiheadAttention.

        A boolean mask is True where a key is hidden; a float one is added to the scores. `is_causal` needs no
        mask beside it; with one, both hold, whatever the mask shows. `key_lengths`, `key_starts` and `window` are those
        of `rela.attend`: padding and windows without a mask, which the fused kernels skip. With a `cache`, `key` and
        `value` are appended to it and the queries look at all of it; without them, the queries look at what is there
        (`remember`).
        """
        if need_weights and self.backend == "triton":
            raise ValueError(
                "backend='triton' cannot serve need_weights=True: the fused kernel never forms the weights"
            )
        limits = key_padding_mask, attn_mask, cache, key_lengths, key_starts, window
        alone = query is key is value and all(limit is None for limit in limits)
        if alone and not need_weights and isinstance(query, Tensor) and query.is_nested:
            return self.forward_nested(query, is_causal), None
        how = key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
        given = query, key, value, *how, cache, key_lengths, key_starts, window
        if cache is None:
            return self.forward_dense(*given)
        check_is_cache(cache)
        before = cache.state
        try:
            return self.forward_dense(*given)
        except BaseException:  # a mask of another shape, say: the caller may give the same positions again
            cache.state = before
            raise

    def forward_dense(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        average_attn_weights: bool,
        is_causal: bool,
        cache: KVCache | None,
        key_lengths: Tensor | None,
        key_starts: Tensor | None,
        window: Window | None,
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` of plain tensors. An error may leave new positions in the cache."""
        batched = self.check_forward(query, key, value, cache)
        batch_second = batched and not self.batch_first
        query, key, value = to_batch(query, key, value, batched, batch_second)
        q, k, v = self.project(query, key, value, cache, has_gradient(self.threshold, key_padding_mask, attn_mask))
        extra = self.extra_keys(k, v)
        if extra is not None:
            k, v = torch.cat([k, extra[0]], 2), torch.cat([v, extra[1]], 2)
        keys = k.size(2)
        appended = 0 if extra is None else extra[0].size(2)
        if appended and (key_lengths is not None or key_starts is not None or window is not None):
            raise ValueError("add_bias_kv and add_zero_attn do not take key_lengths, key_starts or a window")
        mask, causal = merge_module_masks(key_padding_mask, attn_mask, is_causal, q, keys - appended, appended, batched)
        drop = self.dropout if self.training else 0.0
        options = Options(
            self.kind, mask, key_lengths, key_starts, window, causal, None, self.threshold, drop, self.backend
        )
        normal, weights = self.attend_dense(q, k, v, options, need_weights)
        if weights is not None:
            weights = (weights.mean(1) if average_attn_weights else weights).to(q.dtype)
        out = self.out_proj(normal)
        if batch_second:
            out = out.transpose(0, 1)
        if not batched:
            out, weights = out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out, weights

    def attend_dense(
        self, q: Tensor, k: Tensor, v: Tensor, options: Options, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The normalised context [B, T, C] and, if asked for, the weights; a training step stores its penalty."""
        if self.training and self.target_sparsity is not None:
            self.store_penalty(q, k, *limits_of(q, k, options))
        wide = self.wants_wide_context(q)
        if not need_weights:
            return attend_normalised(q, k, v, options, self.norm, wide), None
        # The fused kernels never form the weights, so the reference computes them where they are asked for.
        scale = check_dense(q, k, v, options)
        given = self.kind.weights, scale, *limits_of(q, k, options), self.threshold, options.dropout
        context, weights = reference.attend(q, k, v, *given, wide)
        return normalised(context.transpose(1, 2).flatten(2), self.norm, q.dtype), weights

    def forward_packed(
        self,
        query: Tensor,
        key: Tensor,
        cu_queries: Tensor,
        cu_keys: Tensor,
        max_queries: int,
        max_keys: int,
        causal: bool = False,
    ) -> Tensor:
        """The output [N, C] of packed queries [N, C] over packed keys [M, C], which are also the values.

        Sentences are laid out as in `rela.attend_packed`; no padding is computed. Filler comes out as zeros and
        passes no gradient to any parameter.
        """
        queries, keys = Packing(cu_queries, max_queries), Packing(cu_keys, max_keys)
        return queries.zero_filler(self.forward_sentences(query, key, queries, keys, causal=causal))

    def forward_sentences(
        self, query: Tensor, key: Tensor, queries: Packing, keys: Packing, causal: bool = False
    ) -> Tensor:
        """The output [N, C] of `forward_packed`, with `query` packed by `queries` and `key` by `keys`.

        Filler comes out as the bias of the output projection: a model whose loss ignores it, as ours does, saves the
        pass over the output that would set it to zero.
        """
        if self.bias_k is not None or self.add_zero_attn:
            raise ValueError("forward_packed does not serve add_bias_kv or add_zero_attn; wanted both off")
        if self.kdim != self.vdim:
            raise ValueError(f"kdim is {self.kdim} and vdim {self.vdim}; wanted one size, since key is also the value")
        inputs = [("query", query, self.embed_dim), ("key", key, self.kdim)]
        check_inputs(inputs, self.some_weight(), (2,))
        self.recompute_weights()
        q, k, v = self.project_flat(query, key, key)
        if self.centring is not None and not causal:
            k = centre_keys(k, keys, self.centring)
        q = q.unflatten(-1, (self.num_heads, self.head_dim))
        k, v = (x.unflatten(-1, (self.num_kv_heads, self.head_dim)) for x in (k, v))
        if self.training and self.target_sparsity is not None:
            allowed = allowed_pairs(queries, keys, causal)
            inside = length_mask(queries.lengths, queries.max_seqlen).mT  # [B, 1, T, 1]
            self.store_penalty(queries.pad(q), keys.pad(k), allowed & inside, None)
        if self.observer is not None:
            self.observer(q, k, queries, keys, causal)
        context = attend_sentences(
            q,
            k,
            v,
            queries,
            keys,
            kind=self.kind,
            causal=causal,
            threshold=self.threshold,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
            wide=self.wants_wide_context(q),
        )
        return self.finish(context.flatten(-2), q.dtype)

    def forward_nested(self, query: Any, causal: bool) -> Tensor:
        """The output of self-attention within each sentence of a nested tensor, nested as it came.

        `nn.TransformerEncoder` makes one of padded sentences in evaluation, if its layers were PyTorch's at first.
        """
        sentences = query.unbind()
        if not sentences:
            raise ValueError("query is a nested tensor without sentences; wanted at least one")
        lengths = [len(sentence) for sentence in sentences]
        ends = torch.tensor([0, *lengths], dtype=torch.int32, device=query.device).cumsum(0, dtype=torch.int32)
        packing, packed = Packing(ends, max(lengths)), torch.cat(sentences)
        out = self.forward_sentences(packed, packed, packing, packing, causal)
        if query.layout == torch.jagged and query.lengths() is None:  # of the same offsets, to be added to the query
            return torch.nested.nested_tensor_from_jagged(out, query.offsets())
        return torch.nested.as_nested_tensor(list(out.split(lengths)), layout=query.layout)

    def remember(self, key: Tensor, value: Tensor | None = None) -> KVCache:
        """Keys and values projected once, for `forward(query, cache=…)` to look at again and again."""
        value = key if value is None else value
        check_inputs([("key", key, self.kdim), ("value", value, self.vdim)], self.some_weight(), (2, 3))
        check_key_and_value(key, value)
        self.recompute_weights()
        batched = key.dim() == 3
        _, key, value = to_batch(key, key, value, batched, batched and not self.batch_first)
        bias_k, bias_v = self.bias_parts()[1:]
        k = F.linear(key, self.projection_weights()[1], bias_k)
        v = F.linear(value, self.projection_weights()[2], bias_v)
        cache = KVCache(self.split(k, self.num_kv_heads), self.split(v, self.num_kv_heads))
        cache.owner = self
        return cache

    def recompute_weights(self) -> None:
        """Run what PyTorch's pruning and weight norms have hooked to `forward`: it makes weights of parameters."""
        for hook in self._forward_pre_hooks.values():
            if type(hook).__module__.startswith("torch.nn.utils."):
                hook(self, ())

    def project(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        cache: KVCache | None,
        recorded: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q [B, H, T, D], and k, v [B, Hk, S, D] from the inputs and the cache.

        `recorded` says that gradients of the scores are recorded, though q, k and v may need none.
        """
        if key is None or value is None:
            assert cache is not None
            q = F.linear(query, self.projection_weights()[0], self.bias_parts()[0])
            check_cache(cache, q, self.num_kv_heads, self.head_dim)
            return self.split(q, self.num_heads), cache.keys, cache.values
        if cache is None and query is key is value and self.in_proj_weight is not None:
            together = F.linear(query, self.in_proj_weight, self.in_proj_bias)  # [B, T, 3 · H · D]
            together = together.view(*together.shape[:-1], 3, self.num_heads, self.head_dim)
            q, k, v = together.permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        flat_q, flat_k, flat_v = self.project_flat(query, key, value)
        q = self.split(flat_q, self.num_heads)
        k, v = self.split(flat_k, self.num_kv_heads), self.split(flat_v, self.num_kv_heads)
        if cache is None:
            return q, k, v
        if cache.owner not in (None, self):
            raise ValueError("cache holds keys and values of another attention; wanted a cache for each")
        cache.append(k, v, recorded=recorded or q.requires_grad)
        cache.owner = self
        return q, cache.keys, cache.values

    def project_flat(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three projections before heads are split, in as few products as the inputs allow."""
        if self.in_proj_weight is not None and query is key is value:
            q, k, v = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            return q, k, v
        bias_q, bias_k, bias_v = self.bias_parts()
        if self.in_proj_weight is not None and key is value:
            width = self.embed_dim
            q = F.linear(query, self.in_proj_weight[:width], bias_q)
            both = None if self.in_proj_bias is None else self.in_proj_bias[width:]
            k, v = F.linear(key, self.in_proj_weight[width:], both).chunk(2, -1)
            return q, k, v
        weight_q, weight_k, weight_v = self.projection_weights()
        return F.linear(query, weight_q, bias_q), F.linear(key, weight_k, bias_k), F.linear(value, weight_v, bias_v)

    def wants_wide_context(self, q: Tensor) -> bool:
        """Whether the norm should take its context in float32: a sum over rectified weights outgrows float16."""
        return q.dtype == torch.float16 and self.norm is not None and not self.kind.is_distribution

    def finish(self, merged: Tensor, dtype: torch.dtype) -> Tensor:
        """The output norm on the concatenated heads, then W_o in `dtype`."""
        return self.out_proj(normalised(merged, self.norm, dtype))

    def store_penalty(self, q: Tensor, k: Tensor, allowed: Tensor | None, bias: Tensor | None) -> None:
        """Store the sparsity penalty of this forward; its gradient moves the thresholds and nothing else."""
        assert self.target_sparsity is not None
        assert isinstance(self.threshold, Tensor)  # no parameter where it is parametrised, or under functional_call
        scale = self.head_dim**-0.5
        keep_penalty(self, threshold_penalty(q, k, scale, allowed, bias, self.threshold, self.target_sparsity))

    def some_weight(self) -> Tensor:
        """A projection, for its type and device."""
        return self.q_proj_weight if self.in_proj_weight is None else self.in_proj_weight

    def projection_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The weights of the projections to queries, keys and values."""
        if self.in_proj_weight is not None:
            weight_q, weight_k, weight_v = self.in_proj_weight.chunk(3)
            return weight_q, weight_k, weight_v
        return self.q_proj_weight, self.k_proj_weight, self.v_proj_weight

    def bias_parts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The biases of the same three projections, or None three times."""
        if self.in_proj_bias is None:
            return None, None, None
        kv_width = self.num_kv_heads * self.head_dim
        bias_q, bias_k, bias_v = self.in_proj_bias.split([self.embed_dim, kv_width, kv_width])
        return bias_q, bias_k, bias_v

    def split(self, flat: Tensor, heads: int) -> Tensor:
        """[B, S, heads · D] to [B, heads, S, D]."""
        return flat.view(*flat.shape[:-1], heads, self.head_dim).transpose(1, 2)

    def extra_keys(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """The keys and values that add_bias_kv and add_zero_attn put behind the real ones, or None."""
        keys, values = [], []
        if self.bias_k is not None and self.bias_v is not None:
            # in the type of the real ones: under autocast that is not the parameters'
            keys.append(self.split(self.bias_k.to(k.dtype), self.num_kv_heads).expand(k.size(0), -1, -1, -1))
            values.append(self.split(self.bias_v.to(v.dtype), self.num_kv_heads).expand(k.size(0), -1, -1, -1))
        if self.add_zero_attn:
            keys.append(k.new_zeros(k.size(0), k.size(1), 1, k.size(3)))
            values.append(v.new_zeros(v.size(0), v.size(1), 1, v.size(3)))
        return (torch.cat(keys, 2), torch.cat(values, 2)) if keys else None

    def check_forward(self, query: Tensor, key: Tensor | None, value: Tensor | None, cache: KVCache | None) -> bool:
        """Shapes, types and devices agree; whether the input has a batch dimension."""
        known = self.check_key(query, key, value) if cache is None and is_plain_eager(query) else None
        if known is None or known not in CHECKED:
            self.check_inputs(query, key, value, cache)
            if known is not None:
                if len(CHECKED) >= MOST_CHECKED:
                    CHECKED.clear()
                CHECKED.add(known)
        return query.dim() == 3

    def check_key(self, query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple | None:
        """All that the checks of an input without a cache look at; None where something is no plain tensor."""
        if type(key) is not Tensor or type(value) is not Tensor or query.is_nested:
            return None
        weight = self.some_weight()
        sizes = self.embed_dim, self.kdim, self.vdim, self.batch_first
        inputs = [(x.shape, x.dtype, x.device) for x in ((query,) if query is key is value else (query, key, value))]
        autocast = weight.device.type != "meta" and torch.is_autocast_enabled(weight.device.type)
        return *inputs, *sizes, weight.dtype, weight.device, autocast

    def check_inputs(self, query: Tensor, key: Tensor | None, value: Tensor | None, cache: KVCache | None) -> None:
        """Refuse inputs whose sizes, types or devices do not fit the module or each other."""
        if (key is None) != (value is None):
            raise ValueError("key and value were not given together; wanted both or, with a cache, neither")
        if key is None and cache is None:
            raise ValueError("key and value are missing; wanted both, or a cache to look at")
        inputs = [("query", query, self.embed_dim)]
        if key is not None and value is not None:
            inputs += [("key", key, self.kdim), ("value", value, self.vdim)]
        check_inputs(inputs, self.some_weight(), (2, 3))
        if key is not None and value is not None:
            check_key_and_value(key, value)
            check_batch(query, key, 0 if self.batch_first else 1)

    def __getstate__(self) -> dict:
        # The penalty belongs to one forward and its graph, neither of which can be copied or stored; a copy's share of
        # the mean key would never change again.
        return {**super().__getstate__(), "penalty": None, "open_forwards": 0, "observer": None, "centring": None}

    def extra_repr(self) -> str:
        kind = f"{self.kind.weights}+{self.kind.norm}"
        grouped = "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        threshold = "learned" if isinstance(self.threshold, Tensor) else self.threshold
        return (
            f"{self.embed_dim}, {self.num_heads}, kind={kind}{grouped}, threshold={threshold}, dropout={self.dropout}"
        )


def has_gradient(*values: object) -> bool:
    """Whether autograd records what is computed with one of these, tensors or not."""
    return torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in values)


def to_batch(
    query: Tensor, key: Tensor | None, value: Tensor | None, batched: bool, batch_second: bool
) -> tuple[Tensor, Any, Any]:
    """Any layout to [B, T, C]; inputs that are one tensor stay one, so that they are projected together."""

    def turn(x: Tensor) -> Tensor:
        return x.transpose(0, 1) if batch_second else x if batched else x.unsqueeze(0)

    new_query = turn(query)
    if key is None or value is None:
        return new_query, None, None
    new_key = new_query if key is query else turn(key)
    return new_query, new_key, new_key if value is key else turn(value)
