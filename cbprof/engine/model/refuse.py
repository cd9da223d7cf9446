"""What the engine cannot run, refused by name before any weight is loaded.

The engine keeps every key and value of a request in pages and lets every query see all of them. A model that needs
something else would run and give wrong tokens, so it is refused: by its configuration (:func:`refuse_config`), by its
class (:func:`refuse_class`), or, where neither tells, by what it asks of its attention (:func:`refuse_call`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cbprof.engine.model.presets import PRESETS
from cbprof.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

WHAT_WORKS = (
    f"full softmax attention (MHA or GQA) works: Llama, Qwen2, Qwen3, Mistral without a window, or --model "
    f"{', '.join(PRESETS)}"
)


def unsupported(model: str, feature: str) -> UsageError:
    """The one line that says which feature of which model stands in the way."""
    return UsageError(f"{model} uses {feature}, which this engine does not run; {WHAT_WORKS}")


def refuse_config(config: PreTrainedConfig, model: str) -> None:
    """Raise :class:`UsageError` for the first feature in ``config`` that the engine cannot run."""
    for found in _CHECKS:
        if feature := found(config):
            raise unsupported(model, feature)


def refuse_class(model_class: Any, model: str) -> None:
    """Raise :class:`UsageError` if ``model_class`` computes attention itself instead of through AttentionInterface."""
    if not getattr(model_class, "_supports_attention_backend", False):
        raise unsupported(model, f"attention code of its own ({model_class.__name__} without AttentionInterface)")


def refuse_call(module: Any, attention_mask: object, kwargs: Mapping[str, Any]) -> None:
    """Raise :class:`UsageError` if ``module`` asks its attention function for more than causal softmax."""
    model = module.config.name_or_path or module.config.model_type
    for argument, feature in _CALL_FEATURES.items():
        if kwargs.get(argument) is not None:
            raise unsupported(model, feature)
    if attention_mask is not None:
        raise unsupported(model, "an attention mask of its own")
    if not getattr(module, "is_causal", True) or kwargs.get("is_causal") is False:
        raise unsupported(model, "attention that is not causal")


_CALL_FEATURES = {
    "sliding_window": "a sliding window",
    "s_aux": "attention sinks",
    "softcap": "attention soft-capping",
    "position_bias": "an attention bias by position",
    "indices": "sparse attention",
    "block_indices": "sparse attention",
}

_RECURRENT = ("mamba", "rwkv", "lstm", "recurrent", "linear_attention", "conv", "hybrid", "ssm")
_LAYER_NAMES = {
    "sliding_attention": "a sliding window",
    "window_attention": "a sliding window",
    "chunked_attention": "chunked attention",
}


def _encoder_decoder(config: Any) -> str | None:
    return "an encoder beside its decoder" if config.is_encoder_decoder else None


def _several_parts(config: Any) -> str | None:
    text = config.get_text_config()
    return f"several models in one ({', '.join(sorted(config.sub_configs))})" if text is not config else None


def _latent_attention(config: Any) -> str | None:
    rank = getattr(config, "kv_lora_rank", None)
    return f"multi-head latent attention (MLA, kv_lora_rank={rank})" if rank else None


def _recurrent_state(config: Any) -> str | None:
    names = [config.model_type, *_layer_types(config)]
    for name in names:
        if any(word in name for word in _RECURRENT):
            return f"state-space, linear-attention or convolution layers ({name})"
    for attribute in ("state_size", "mamba_d_state", "ssm_cfg", "linear_attn_config", "conv_L_cache"):
        if getattr(config, attribute, None) is not None:
            return f"state-space, linear-attention or convolution layers ({attribute})"
    return None


def _attention_sinks(config: Any) -> str | None:
    return "attention sinks" if config.model_type == "gpt_oss" else None


def _partial_attention(config: Any) -> str | None:
    for kind in _layer_types(config):
        if kind not in {"full_attention", "attention"}:
            return f"{_LAYER_NAMES.get(kind, 'attention other than full')} (layer_types has {kind})"
    return None


def _sliding_window(config: Any) -> str | None:
    window = getattr(config, "sliding_window", None)
    # With layer_types every layer says itself what it is; without, the window holds for all of them.
    if window is None or not getattr(config, "use_sliding_window", True) or _layer_types(config):
        return None
    return f"a sliding window (sliding_window={window})"


def _soft_capping(config: Any) -> str | None:
    cap = getattr(config, "attn_logit_softcapping", None)
    return f"attention soft-capping (attn_logit_softcapping={cap})" if cap else None


def _alibi(config: Any) -> str | None:
    attention: Any = getattr(config, "attn_config", None)
    uses = (
        config.model_type == "bloom"
        or getattr(config, "alibi", False)
        or getattr(config, "position_embedding_type", None) == "alibi"
        or getattr(attention, "alibi", False)
    )
    return "ALiBi position biases" if uses else None


def _length_dependent_rope(config: Any) -> str | None:
    for kind in _rope_types(getattr(config, "rope_parameters", None)):
        if kind in {"dynamic", "longrope"}:
            return f"RoPE that changes with the length of the context (rope_type={kind})"
    return None


def _layer_types(config: Any) -> list[str]:
    names = ("layer_types", "layers_block_type", "block_types")
    return [kind for name in names for kind in getattr(config, name, None) or ()]


def _rope_types(parameters: Any) -> Iterator[str]:
    """The rope type, or one a layer type where ``rope_parameters`` is nested."""
    if isinstance(parameters, Mapping):
        if isinstance(kind := parameters.get("rope_type"), str):
            yield kind
        for inner in parameters.values():
            yield from _rope_types(inner)


# From the most telling to the least: a hybrid model also has layer types, gpt_oss also has windows.
_CHECKS: tuple[Callable[[Any], str | None], ...] = (
    _encoder_decoder,
    _several_parts,
    _latent_attention,
    _recurrent_state,
    _attention_sinks,
    _soft_capping,
    _alibi,
    _partial_attention,
    _sliding_window,
    _length_dependent_rope,
)
