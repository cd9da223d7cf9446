"""The fused decoder's small operations as Triton kernels: each a single launch. For their meaning see
:class:`~cbprof.engine.model.fused.decoder.FusedOps`. All tensors are contiguous."""

from __future__ import annotations

import torch
import triton

from cbprof.engine.model.fused import kernels
from cbprof.engine.model.fused.decoder import Embedded
from cbprof.engine.model.fused.fuse import HeadNorms
from cbprof.engine.model.inputs import StepInputs

_ROW_WARPS = 8
_HEADS_A_PROGRAM = 8
_COLUMNS_A_PROGRAM = 1024


def embed_and_norm(
    inputs: StepInputs, previous: torch.Tensor, embedding: torch.Tensor, norm: torch.Tensor, eps: float
) -> Embedded:
    tokens, size = len(inputs.input_ids), embedding.shape[1]
    normed, residual = embedding.new_empty(tokens, size), embedding.new_empty(tokens, size)
    kernels.embed_and_norm[(tokens,)](
        inputs.input_ids,
        inputs.carry,
        previous,
        embedding,
        norm,
        normed,
        residual,
        eps,
        SIZE=size,
        PADDED_SIZE=triton.next_power_of_2(size),
        num_warps=_ROW_WARPS,
    )
    return Embedded(normed, residual)


def add_and_norm(update: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float) -> torch.Tensor:
    return _add_and_norm(update, residual, None, norm, eps)


def add_and_norm_rows(
    update: torch.Tensor, residual: torch.Tensor, rows: torch.Tensor, norm: torch.Tensor, eps: float
) -> torch.Tensor:
    return _add_and_norm(update, residual, rows, norm, eps)


def _add_and_norm(
    update: torch.Tensor, residual: torch.Tensor, rows: torch.Tensor | None, norm: torch.Tensor, eps: float
) -> torch.Tensor:
    count, size = len(update if rows is None else rows), update.shape[1]
    normed = update.new_empty(count, size)
    kernels.add_and_norm[(count,)](
        update,
        residual,
        rows,
        norm,
        normed,
        eps,
        SIZE=size,
        PADDED_SIZE=triton.next_power_of_2(size),
        AT_ROWS=rows is not None,
        num_warps=_ROW_WARPS,
    )
    return normed


def rotate_and_write(
    qkv: torch.Tensor,
    rope: torch.Tensor,
    write_at: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    norms: HeadNorms | None,
    eps: float,
) -> torch.Tensor:
    """The queries are rotated in place: what is returned is a part of ``qkv``."""
    kv_heads, head_dim = keys.shape[1:]
    all_heads = qkv.shape[1] // head_dim
    heads = all_heads - 2 * kv_heads
    query_norm, key_norm = norms or (None, None)
    kernels.rotate_and_write[(len(qkv), triton.cdiv(all_heads, _HEADS_A_PROGRAM))](
        qkv,
        rope,
        write_at,
        keys,
        values,
        query_norm,
        key_norm,
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HALF=head_dim // 2,
        PADDED_HALF=triton.next_power_of_2(head_dim // 2),
        TILE=_HEADS_A_PROGRAM,
        NORM=norms is not None,
        num_warps=2,
    )
    return qkv[:, : heads * head_dim].view(-1, heads, head_dim)


def silu_and_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    rows, size = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, size)
    kernels.silu_and_multiply[(rows, triton.cdiv(size, _COLUMNS_A_PROGRAM))](
        gate_up, out, SIZE=size, TILE=_COLUMNS_A_PROGRAM, num_warps=4
    )
    return out
