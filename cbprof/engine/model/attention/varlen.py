"""Paged attention by torch's own flash kernel, where its ``varlen_attn`` reads keys and values through a block table.

A peer of :mod:`~cbprof.engine.model.attention.triton`, to compare with: the same inputs, read on the device, and a grid
that depends on the bucket alone, so that graphs capture it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

import torch

from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.inputs import StepInputs
from cbprof.errors import UsageError

_CAUSAL = (-1, 0)
"""``window_size``: all that came before, and nothing after. Aligned to the last key of each row."""

_PAGE = 256
"""Flash attention 2 reads pages of a multiple of as many tokens."""


class VarlenAttention:
    """The :class:`~cbprof.engine.model.attention.paged.Attention` of torch.

    Raises :class:`UsageError` where it cannot be."""

    def __init__(self, layout: SlotLayout) -> None:
        self._layout = layout
        self._attend = _varlen_attn()
        if layout.block_size % _PAGE:
            raise UsageError(
                f"--attention varlen reads KV blocks of a multiple of {_PAGE} tokens, not {layout.block_size}: give "
                f"--block-size {_PAGE}"
            )

    def plan(self, inputs: StepInputs) -> _Plan:
        return _Plan(inputs, self._layout, self._attend)


class _Plan:
    """An :class:`~cbprof.engine.model.attention.paged.Attend` for one bucket of one slot."""

    def __init__(self, inputs: StepInputs, layout: SlotLayout, attend: Callable[..., torch.Tensor]) -> None:
        self._inputs, self._layout, self._attend = inputs, layout, attend

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        at, tokens = self._inputs, len(query)
        pages = (-1, self._layout.block_size, *keys.shape[1:])
        attended = self._attend(
            query.contiguous(),
            keys.view(pages),
            values.view(pages),
            cu_seq_q=at.query_start,
            cu_seq_k=None,
            max_q=tokens,
            max_k=self._layout.max_context,
            scale=scale,
            window_size=_CAUSAL,
            enable_gqa=True,
            seqused_k=at.context,
            block_table=at.block_table,
        )
        # Nobody writes the rows of padding.
        padding = torch.arange(tokens, device=query.device) >= at.query_start[-1]
        return attended.masked_fill(padding[:, None, None], 0)


def _varlen_attn() -> Callable[..., torch.Tensor]:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        known = False
    else:
        known = "block_table" in inspect.signature(varlen_attn).parameters
    if not known:
        raise UsageError(
            f"--attention varlen: the varlen_attn of torch {torch.__version__} reads no block table; use a newer "
            "torch, or --attention triton"
        )
    return cast("Callable[..., torch.Tensor]", varlen_attn)  # which also gives pairs, if asked to
