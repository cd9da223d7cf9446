"""Paged attention in plain torch, for the CPU and any dtype.

The rows of a batch fall into two groups, those with one query (decodes) and those with more (prefill chunks). Each
group gathers its keys and values through the block table into one padded tensor and is one scaled dot-product call.
The shapes depend on the data, so a CUDA graph cannot capture this.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from cbprof.engine.model.inputs import StepInputs


class _Group(NamedTuple):
    """``n`` rows, padded to ``Q`` queries and ``L`` keys. A missing query repeats the row's last one."""

    tokens: torch.Tensor
    """Packed index of each query, int64 ``[n, Q]``."""
    blocks: torch.Tensor
    """The rows' blocks, one after the other, int32 ``[n * blocks a row]``."""
    mask: torch.Tensor
    """Which keys a query sees, bool ``[n, 1, group * Q, L]``."""


class TorchAttention:
    """The :class:`~cbprof.engine.model.attention.paged.Attention` of the CPU; ``group`` is heads / kv_heads."""

    def __init__(self, block_size: int, group: int) -> None:
        self._block_size = block_size
        self._group = group
        self._keys, self._values = _Workspace(), _Workspace()

    def plan(self, inputs: StepInputs) -> _Plan:
        counts = inputs.query_start.diff()
        return _Plan(
            [
                _group(inputs, rows, counts[rows], self._block_size, self._group)
                for rows in ((counts == 1).nonzero()[:, 0], (counts > 1).nonzero()[:, 0])
                if len(rows)
            ],
            self._keys,
            self._values,
        )


class _Workspace:
    """Memory for gathered blocks, kept between steps: fresh memory costs a page fault every 4 KiB on its first use."""

    def __init__(self) -> None:
        self._blocks = torch.empty(0, 0)

    def gather(self, cache: torch.Tensor, group: _Group) -> torch.Tensor:
        """Keys or values of the group's rows, ``[n, kv_heads, L, head_dim]``, in whole blocks: long copies are fast."""
        _, kv_heads, head_dim = cache.shape
        rows, _, _, length = group.mask.shape
        blocks = cache.view(-1, length * rows * kv_heads * head_dim // len(group.blocks))
        if self._blocks.dtype != cache.dtype or len(self._blocks) < len(group.blocks):
            self._blocks = cache.new_empty(2 * len(group.blocks), blocks.shape[1])
        gathered = torch.index_select(blocks, 0, group.blocks, out=self._blocks[: len(group.blocks)])
        return gathered.view(rows, length, kv_heads, head_dim).transpose(1, 2)


class _Plan(NamedTuple):
    """An :class:`~cbprof.engine.model.attention.paged.Attend` for one batch."""

    groups: list[_Group]
    keys: _Workspace
    values: _Workspace

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        tokens, heads, head_dim = query.shape
        kv_heads = keys.shape[1]
        out = query.new_zeros(tokens, heads, head_dim)
        for group in self.groups:
            rows, queries = group.tokens.shape
            # The heads that share a KV head become further queries of it, so that no key is copied for them.
            folded = query[group.tokens].view(rows, queries, kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
            attended = scaled_dot_product_attention(
                folded.reshape(rows, kv_heads, -1, head_dim),
                self.keys.gather(keys, group),
                self.values.gather(values, group),
                attn_mask=group.mask,
                scale=scale,
            )
            unfolded = attended.view(rows, kv_heads, -1, queries, head_dim).permute(0, 3, 1, 2, 4)
            out[group.tokens] = unfolded.reshape(rows, queries, heads, head_dim)
        return out


def _group(inputs: StepInputs, rows: torch.Tensor, counts: torch.Tensor, block_size: int, group: int) -> _Group:
    """The group of ``rows`` (int64 ``[n]``), which have ``counts`` (``[n]``) queries each."""
    device = rows.device
    offsets = torch.arange(int(counts.max()), device=device).minimum(counts[:, None] - 1)
    tokens = inputs.query_start[rows, None] + offsets
    blocks_a_row = -(-int(inputs.context[rows].max()) // block_size)
    # Beyond a row's context the table holds anything; those keys are masked, but must be read from somewhere.
    blocks = inputs.block_table[rows, :blocks_a_row].clamp(min=0).flatten()
    visible = torch.arange(blocks_a_row * block_size, device=device) <= inputs.positions[tokens][:, :, None]
    return _Group(tokens, blocks, visible[:, None, :, :].repeat(1, 1, group, 1))
