"""The fused decoder's small operations in plain torch, for the CPU and any dtype: what each of them means."""

from __future__ import annotations

import torch
from torch.nn.functional import embedding as look_up
from torch.nn.functional import silu

from cbprof.engine.model.fused.decoder import Embedded
from cbprof.engine.model.fused.fuse import HeadNorms
from cbprof.engine.model.inputs import StepInputs, known_ids


def embed_and_norm(
    inputs: StepInputs, previous: torch.Tensor, embedding: torch.Tensor, norm: torch.Tensor, eps: float
) -> Embedded:
    residual = look_up(known_ids(inputs, previous), embedding)
    return Embedded(_rms_norm(residual, norm, eps), residual)


def add_and_norm(update: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float) -> torch.Tensor:
    return _rms_norm(residual.add_(update), norm, eps)


def add_and_norm_rows(
    update: torch.Tensor, residual: torch.Tensor, rows: torch.Tensor, norm: torch.Tensor, eps: float
) -> torch.Tensor:
    return _rms_norm(residual.index_select(0, rows) + update.index_select(0, rows), norm, eps)


def rotate_and_write(
    qkv: torch.Tensor,
    rope: torch.Tensor,
    write_at: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    norms: HeadNorms | None,
    eps: float,
) -> torch.Tensor:
    kv_heads, head_dim = keys.shape[1:]
    by_head = qkv.unflatten(1, (-1, head_dim))
    query, key, value = by_head.split((by_head.shape[1] - 2 * kv_heads, kv_heads, kv_heads), dim=1)
    if norms:
        query, key = _rms_norm(query, norms.query, eps), _rms_norm(key, norms.key, eps)
    at = write_at.long()
    keys.index_copy_(0, at, _rotate(key, rope))
    values.index_copy_(0, at, value)
    return _rotate(query, rope)


def silu_and_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate).mul_(up)


def _rms_norm(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = states.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(states.dtype)


def _rotate(states: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    """RoPE over halves of the head dimension (Su et al. 2021, as Llama lays it out), in float32 or wider."""
    cos, sin = rope[:, None].unbind(2)
    low, high = states.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(states.dtype)
