"""The pass that makes a lean decoder of a Llama or Qwen model: projections that read the same input become one matrix.

A decode step reads every weight once and does little else, so what counts is the number of kernels and how long each
matrix product is. Of a layer's seven products four remain; what lies between them is fused by
:mod:`cbprof.engine.model.fused.decoder`, from some thirty kernels to six.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes of transformers whose forward pass is exactly the one of the fused decoder."""


class Projection(NamedTuple):
    """``x @ weight.T + bias``; ``weight`` is ``[out, in]``."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        return linear(states, self.weight, self.bias)


class HeadNorms(NamedTuple):
    """Weights ``[head_dim]`` of the RMS norms of each query head and each key head (Qwen3)."""

    query: torch.Tensor
    key: torch.Tensor


class LayerWeights(NamedTuple):
    """One decoder layer. ``qkv`` gives ``[T, (heads + 2 * kv_heads) * head_dim]``, ``gate_up`` ``[T, 2 * inner]``."""

    input_norm: torch.Tensor
    qkv: Projection
    head_norms: HeadNorms | None
    output: Projection
    inner_norm: torch.Tensor
    gate_up: Projection
    down: Projection


class DecoderWeights(NamedTuple):
    """A whole model. ``head`` and ``embedding`` may share memory (tied weights)."""

    embedding: torch.Tensor
    layers: list[LayerWeights]
    norm: torch.Tensor
    head: Projection
    rope: torch.Tensor
    """cos and sin by position, float32 ``[max_context, 2, head_dim / 2]``, scaled as the model's RoPE type asks."""
    eps: float


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether ``model`` is of a known family, in a form that the fused decoder computes.

    Known by class, not by configuration: only the class says what its forward pass does.
    """
    config: Any = model.config
    return (
        type(model).__name__ in FAMILIES
        and type(model).__module__.startswith("transformers.")
        and config.hidden_act == "silu"
        and getattr(config, "quantization_config", None) is None
    )


def take_apart(model: PreTrainedModel, max_context: int) -> DecoderWeights:
    """The merged weights of ``model``, whose layers are given up one by one: at no time are there two copies of all.

    ``max_context`` is the most positions that a request can have. The model is of no use afterwards.
    """
    whole: Any = model
    inside = whole.model
    layers = []
    while inside.layers:
        layers.append(_merge(inside.layers.pop(0)))
    weights = DecoderWeights(
        embedding=inside.embed_tokens.weight,
        layers=layers,
        norm=inside.norm.weight,
        head=_projection(whole.lm_head),
        rope=_rope_table(inside.rotary_emb, max_context),
        eps=inside.norm.variance_epsilon,
    )
    torch.cuda.empty_cache()  # what the originals held is in pieces that nothing of this size will fit into
    return weights


def _merge(layer: Any) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    norms = HeadNorms(attention.q_norm.weight, attention.k_norm.weight) if hasattr(attention, "q_norm") else None
    return LayerWeights(
        input_norm=layer.input_layernorm.weight,
        qkv=_projection(attention.q_proj, attention.k_proj, attention.v_proj),
        head_norms=norms,
        output=_projection(attention.o_proj),
        inner_norm=layer.post_attention_layernorm.weight,
        gate_up=_projection(mlp.gate_proj, mlp.up_proj),
        down=_projection(mlp.down_proj),
    )


def _projection(*parts: nn.Linear) -> Projection:
    """The outputs of ``parts`` one after the other. Those of these families all have a bias, or none has."""
    if len(parts) == 1:
        return Projection(parts[0].weight, parts[0].bias)
    weights: list[torch.Tensor] = [part.weight for part in parts]
    biases: list[torch.Tensor] = [part.bias for part in parts if part.bias is not None]
    return Projection(torch.cat(weights), torch.cat(biases) if biases else None)


def _rope_table(rotary: nn.Module, max_context: int) -> torch.Tensor:
    """Asked of the model's own module, so that every RoPE type that is a function of the position alone is right."""
    frequencies: Any = rotary.inv_freq
    positions = torch.arange(max_context, device=frequencies.device)
    cos, sin = rotary(frequencies.new_empty(0, dtype=torch.float32), positions[None])
    # Both halves of the head dimension turn by the same angles.
    half = cos.shape[-1] // 2
    return torch.stack((cos[0, :, :half], sin[0, :, :half]), dim=1)
