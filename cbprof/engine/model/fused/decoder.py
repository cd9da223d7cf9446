"""The forward pass of Llama and Qwen models with few kernels: what a decode step waits for is its small ones.

A layer, the matrix products in capitals::

    norm -> QKV -> head norms, RoPE, KV write -> attention -> OUTPUT -> add
     norm -> GATE_UP -> SiLU * up -> DOWN -> add     (add and the norm after it are one kernel)

The small operations have two forms behind one interface, :class:`FusedOps`: plain torch for the CPU, and Triton.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from cbprof.engine.model.attention.paged import Attend, PagedCache
from cbprof.engine.model.fused.fuse import DecoderWeights, HeadNorms
from cbprof.engine.model.inputs import StepInputs


class Embedded(NamedTuple):
    """Both ``[T, hidden]``."""

    normed: torch.Tensor
    residual: torch.Tensor


class FusedOps(Protocol):
    """What lies between the matrix products. A norm is RMSNorm as transformers computes it: in float32, rounded to the
    dtype of the model, then multiplied by its weight."""

    def embed_and_norm(
        self, inputs: StepInputs, previous: torch.Tensor, embedding: torch.Tensor, norm: torch.Tensor, eps: float
    ) -> Embedded:
        """The embeddings of the batch's tokens, those carried over read from ``previous``, and their norm."""

    def add_and_norm(
        self, update: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """Add ``update`` to ``residual``, in place (both ``[T, hidden]``), and return the norm of the sum."""

    def add_and_norm_rows(
        self, update: torch.Tensor, residual: torch.Tensor, rows: torch.Tensor, norm: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """The norm of the sum at ``rows`` (int32 ``[R]``) alone, ``[R, hidden]``. Changes nothing."""

    def rotate_and_write(
        self,
        qkv: torch.Tensor,
        rope: torch.Tensor,
        write_at: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        norms: HeadNorms | None,
        eps: float,
    ) -> torch.Tensor:
        """Norm, if ``norms``, and rotate queries and keys; write keys and values to KV slots ``write_at`` (``[T]``).

        ``rope`` is cos and sin of each token, float32 ``[T, 2, head_dim / 2]``; ``keys`` and ``values`` are
        ``[KV slots, kv_heads, head_dim]``. Returns the queries ``[T, heads, head_dim]``, which may lie in ``qkv``.
        """

    def silu_and_multiply(self, gate_up: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up``, ``[T, inner]``, of ``gate_up`` ``[T, 2 * inner]``."""


class FusedDecoder:
    """A :class:`~cbprof.engine.model.runner.Decoder` of merged weights and fused operations."""

    def __init__(self, weights: DecoderWeights, ops: FusedOps) -> None:
        self._weights, self._ops = weights, ops
        self._scale = (2 * weights.rope.shape[-1]) ** -0.5

    def logits(self, inputs: StepInputs, previous: torch.Tensor, cache: PagedCache, attend: Attend) -> torch.Tensor:
        ops, weights, eps = self._ops, self._weights, self._weights.eps
        layers = weights.layers
        rope = weights.rope.index_select(0, inputs.positions)
        states, residual = ops.embed_and_norm(inputs, previous, weights.embedding, layers[0].input_norm, eps)
        for index, layer in enumerate(layers):
            if index:
                states = ops.add_and_norm(states, residual, layer.input_norm, eps)
            keys, values = cache.layer(index)
            qkv = layer.qkv(states)
            query = ops.rotate_and_write(qkv, rope, inputs.write_at, keys, values, layer.head_norms, eps)
            attended = layer.output(attend(query, keys, values, self._scale).flatten(1))
            inner = ops.add_and_norm(attended, residual, layer.inner_norm, eps)
            states = layer.down(ops.silu_and_multiply(layer.gate_up(inner)))
        sampled = ops.add_and_norm_rows(states, residual, inputs.sample_at, weights.norm, eps)
        return weights.head(sampled)
