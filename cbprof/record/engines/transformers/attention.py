"""Flash attention for transformers' continuous batching where the flash-attn package is missing: torch's own kernel.

Without it, CUDA graphs and async batching are off by default there: an implementation whose name lacks "flash" gets
attention masks, as large as the cache.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from cbprof.errors import EngineError

NAME = "cbprof_flash_varlen"
"""With "flash", and without a version (``flash...2``, ``flash...3``), which would make transformers look for the
package."""

calls = 0
"""How often it was used."""


def name_for(transformers: str) -> str:
    """Its name in that version. Up to 5.18 ``paged|`` says that it is one of continuous batching, so that nothing is
    switched; from 5.19 on the prefix is taken away, and what is left is looked up."""
    major, minor = (int(part) for part in transformers.split(".")[:2])
    return f"paged|{NAME}" if (major, minor) < (5, 19) else NAME


def use_torch_flash(model: Any) -> None:
    """Let ``model``, on CUDA in half precision, use it in continuous batching."""
    from transformers.modeling_utils import AttentionInterface

    name = name_for(version("transformers"))
    AttentionInterface.register(name, flash_attention)
    model.config._attn_implementation_internal = name  # setting it by its public name loads kernels first


def flash_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None, **kwargs: Any
) -> tuple[Any, None]:
    """The attention of one layer, as AttentionInterface calls it.

    ``query`` is ``[1, heads, T, head_dim]``, ``key`` and ``value`` ``[1, kv_heads, T, head_dim]``. Up to 5.18 the
    cache, among the arguments, gives them back with all that came before, ``[K, kv_heads, head_dim]``; from 5.19 on the
    model has asked it already, and they are ``[1, kv_heads, K, head_dim]``. Rows are told apart by cumulative lengths.
    Returns ``[T, heads, head_dim]``.
    """
    import torch

    global calls  # noqa: PLW0603 - of all models together
    calls += 1
    if (cache := kwargs.get("cache")) is not None:
        keys, values = cache.update(
            key_states=key,
            value_states=value,
            layer_idx=module.layer_idx,
            read_index=kwargs["read_index"],
            write_index=kwargs["write_index"],
        )
    elif kwargs.get("block_table") is not None:
        raise EngineError(
            "torch's flash kernel has no block tables: set max_blocks_per_request=0 in the batching config"
        )
    else:
        keys, values = (each.squeeze(0).transpose(0, 1) for each in (key, value))
    output = torch.ops.aten._flash_attention_forward(
        query.transpose(1, 2).squeeze(0).contiguous(),
        keys.contiguous(),
        values.contiguous(),
        kwargs["cu_seq_lens_q"].to(torch.int32),
        kwargs["cu_seq_lens_k"].to(torch.int32),
        kwargs["max_seqlen_q"] if "max_seqlen_q" in kwargs else kwargs["max_length_q"],
        kwargs["max_seqlen_k"] if "max_seqlen_k" in kwargs else kwargs["max_length_k"],
        0.0,  # dropout
        True,  # causal: aligned to the last key of each row
        False,  # no debug mask
        scale=scaling,
    )[0]
    return output, None
