"""The input buffer of a slot, seen as the tensors that a step reads."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cbprof.engine.layout import SlotLayout


class StepInputs(NamedTuple):
    """Views of one slot's buffer, the token fields cut to ``bucket``. See :mod:`cbprof.engine.layout` for each."""

    input_ids: torch.Tensor
    carry: torch.Tensor
    positions: torch.Tensor
    write_at: torch.Tensor
    query_start: torch.Tensor
    context: torch.Tensor
    sample_at: torch.Tensor
    noise_key: torch.Tensor
    temperature: torch.Tensor
    block_table: torch.Tensor


_TOKEN_FIELDS = {"input_ids", "carry", "positions", "write_at"}


def view(buffer: torch.Tensor, layout: SlotLayout, bucket: int) -> StepInputs:
    """Cut ``buffer`` (int32, ``[layout.input_size]``) into its fields; temperature is seen as float32."""
    views = {}
    for name, field in layout.fields.items():
        whole = buffer[field.offset : field.stop].view(field.shape)
        views[name] = whole[:bucket] if name in _TOKEN_FIELDS else whole
    views["temperature"] = views["temperature"].view(torch.float32)
    return StepInputs(**views)


def fill_idle(buffer: torch.Tensor, layout: SlotLayout, scratch: int) -> None:
    """Describe a batch of padding only: it writes ``scratch`` (a KV slot) and reads nothing of any request."""
    buffer.zero_()
    idle = view(buffer, layout, layout.max_tokens)
    idle.carry.fill_(-1)
    idle.write_at.fill_(scratch)


def known_ids(inputs: StepInputs, previous: torch.Tensor) -> torch.Tensor:
    """The token ids ``[bucket]``, those carried over read from ``previous``, the output ``[R]`` of the slot before."""
    carried = previous[inputs.carry.clamp(min=0)]
    return torch.where(inputs.carry >= 0, carried, inputs.input_ids)
