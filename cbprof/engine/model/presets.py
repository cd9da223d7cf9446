"""Models that need no download: a shape each, filled with seeded random weights.

The shapes are those of published models; only ``tiny`` is ours, sized so that one decode step takes a few milliseconds
on one CPU core. Random weights time exactly as trained ones do, and are scaled so that sampled tokens vary: a
repetitive output would hide a stale carry-over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {
        "model_type": "llama",
        "vocab_size": 2048,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 16_384,
        "tie_word_embeddings": False,
    },
    "llama-1b": {  # meta-llama/Llama-3.2-1B
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": _LLAMA3_ROPE | {"factor": 32.0},
        "tie_word_embeddings": True,
    },
    "llama-8b": {  # meta-llama/Llama-3.1-8B
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": _LLAMA3_ROPE | {"factor": 8.0},
        "tie_word_embeddings": False,
    },
    "qwen3-8b": {  # Qwen/Qwen3-8B
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": False,
    },
}
"""Keyword arguments of ``AutoConfig.for_model``, by the name of the preset."""

LOGIT_STD = 2.0
"""Standard deviation of the logits. At temperature 1 some thousands of ids of a large vocabulary stay likely."""


def fill_randomly(model: PreTrainedModel, seed: int) -> None:
    """Give every matrix of a preset's ``model`` normal weights, in place and on its own device.

    A linear layer gets a standard deviation of 1 / sqrt(fan in), which keeps activations near unit size. The head,
    whose input the final norm has brought to unit size, gets :data:`LOGIT_STD` times that. Vectors stay as they were
    built: the presets have no biases, and the weights of their norms are 1.
    The numbers depend on ``seed``, on the dtype, and on the kind of device, whose generator draws them.
    """
    import torch

    generator = torch.Generator(model.device).manual_seed(seed)
    head = model.get_output_embeddings().weight
    embedding = model.get_input_embeddings().weight
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                continue
            if parameter is head:
                std = LOGIT_STD * parameter.shape[-1] ** -0.5
            elif parameter is embedding:
                std = 1.0
            else:
                std = parameter.shape[-1] ** -0.5
            parameter.normal_(0.0, std, generator=generator)
