"""Flash attention for transformers' continuous batching where the flash-attn package is missing: torch's own kernel.

Without it, CUDA graphs and async batching are off by default there: an implementation whose name lacks "flash" gets
attention masks, as large as the cache.
"""

from __future__ import annotations

from typing import Any

NAME = "paged|cbprof_flash_varlen"
"""``paged|``, so that nothing is switched; with "flash", and without a version (``flash...2``, ``flash...3``), which
would make transformers look for the package."""


def use_torch_flash(model: Any) -> None:
    """Let ``model``, on CUDA in half precision, use it in continuous batching."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, flash_attention)
    model.config._attn_implementation_internal = NAME  # setting it by its public name loads kernels first


def flash_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None, **kwargs: Any
) -> tuple[Any, None]:
    """The attention of one layer, as AttentionInterface calls it.

    ``query`` is ``[1, heads, T, head_dim]``, ``key`` and ``value`` ``[1, kv_heads, T, head_dim]``. The cache gives them
    back with all that came before, ``[K, kv_heads, head_dim]``; rows are told apart by cumulative lengths. Returns
    ``[T, heads, head_dim]``.
    """
    import torch

    keys, values = kwargs["cache"].update(
        key_states=key,
        value_states=value,
        layer_idx=module.layer_idx,
        read_index=kwargs["read_index"],
        write_index=kwargs["write_index"],
    )
    output = torch.ops.aten._flash_attention_forward(
        query.transpose(1, 2).squeeze(0).contiguous(),
        keys.contiguous(),
        values.contiguous(),
        kwargs["cu_seq_lens_q"].to(torch.int32),
        kwargs["cu_seq_lens_k"].to(torch.int32),
        kwargs["max_seqlen_q"],
        kwargs["max_seqlen_k"],
        0.0,  # dropout
        True,  # causal: aligned to the last key of each row
        False,  # no debug mask
        scale=scaling,
    )[0]
    return output, None
