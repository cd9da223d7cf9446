"""The paged KV cache, and the attention function that the transformers modules call to read and write it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from cbprof.engine.model.inputs import StepInputs
from cbprof.engine.model.refuse import refuse_call, unsupported

ATTENTION_NAME = "cbprof_paged"
"""Our name in the AttentionInterface of transformers, which builds no mask for names that it does not know."""


class Attend(Protocol):
    """Attention over one batch, planned for its rows: the same for every layer of a step."""

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        """``query`` ``[T, heads, head_dim]``; ``keys`` and ``values`` ``[KV slots, kv_heads, head_dim]``, whole layers.

        Returns ``[T, heads, head_dim]``: each token attends to its row's context up to itself; padding tokens get 0.
        """


class Attention(Protocol):
    """One way to compute paged attention."""

    def plan(self, inputs: StepInputs) -> Attend:
        """What is common to all layers of a step, computed once."""


class PagedCache:
    """Keys and values of all layers. One block more than asked for is the scratch block, which padding writes to."""

    def __init__(
        self,
        *,
        layers: int,
        num_blocks: int,
        block_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.scratch = num_blocks * block_size
        """The first KV slot of the scratch block."""
        self.token_shape = kv_heads, head_dim
        shape = ((num_blocks + 1) * block_size, *self.token_shape)
        # Zeros, not empty: a masked key still enters a product, and 0 * NaN is NaN. Tensors of their own, not views of
        # one: torch.compile would copy all of that whenever a part is written.
        self._layers = [
            (torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(layers)
        ]

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of a layer, ``[KV slots, kv_heads, head_dim]`` each."""
        return self._layers[index]

    def write(
        self, layer: int, at: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put ``key`` and ``value`` ``[T, kv_heads, head_dim]`` into KV slots ``at`` (int64 ``[T]``) of ``layer``.

        Returns :meth:`layer`.
        """
        keys, values = self.layer(layer)
        keys.index_copy_(0, at, key)
        values.index_copy_(0, at, value)
        return keys, values


class PagedStep(NamedTuple):
    """What attention needs to know of a step; travels through the model as the keyword argument ``paged``."""

    cache: PagedCache
    write_at: torch.Tensor
    attend: Attend


def register_attention() -> None:
    """Make :data:`ATTENTION_NAME` known to transformers. Safe to call again."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, paged_attention)


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    paged: PagedStep | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer, as AttentionInterface calls it.

    ``query`` is ``[1, heads, T, head_dim]``, ``key`` and ``value`` ``[1, kv_heads, T, head_dim]``; all tokens of the
    batch lie in one packed sequence. Returns ``[1, T, heads, head_dim]``.
    """
    refuse_call(module, attention_mask, kwargs)
    if paged is None:
        raise unsupported(module.config.model_type, "layers that do not hand their arguments on to attention")
    key, value = _by_token(key), _by_token(value)
    if key.shape[1:] != paged.cache.token_shape or value.shape[1:] != paged.cache.token_shape:
        raise unsupported(module.config.model_type, "keys or values of another shape than its configuration says")
    keys, values = paged.cache.write(module.layer_idx, paged.write_at, key, value)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return paged.attend(_by_token(query), keys, values, scale)[None], None


def _by_token(states: torch.Tensor) -> torch.Tensor:
    """``[1, heads, T, head_dim]`` as ``[T, heads, head_dim]``."""
    return states[0].transpose(0, 1)
