"""Batches for the tests of the model: rows packed into a slot's buffer, with blocks in any order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.inputs import view

torch.set_num_threads(1)  # tensors this small only lose by threads, most of all where other tests run beside

LAYOUT = SlotLayout(max_tokens=48, max_requests=6, max_blocks=8, block_size=4)
NUM_BLOCKS = 40
SCRATCH = NUM_BLOCKS * LAYOUT.block_size


@dataclass(frozen=True)
class Row:
    """Tokens ``start ..`` of one request, whose blocks are ``blocks``. ``carry`` replaces the first token."""

    tokens: list[int]
    start: int
    blocks: list[int]
    carry: int = -1


def pack(buffer: torch.Tensor, rows: dict[int, Row], bucket: int, layout: SlotLayout = LAYOUT) -> None:
    """Write ``rows``, by row index, into ``buffer``, with padding up to ``bucket`` tokens.

    Everything that the model must not depend on gets a hostile value: unused table entries, positions of padding.
    """
    at = view(buffer, layout, layout.max_tokens)
    buffer.zero_()
    at.block_table.fill_(-1)
    at.carry.fill_(-1)
    padding = torch.arange(layout.max_tokens, dtype=torch.int32)
    at.write_at.copy_(SCRATCH + padding % layout.block_size)
    stop = 0
    for index in range(layout.max_requests):
        at.query_start[index] = stop
        if (row := rows.get(index)) is None:
            continue
        here, stop = slice(stop, stop + len(row.tokens)), stop + len(row.tokens)
        positions = torch.arange(row.start, row.start + len(row.tokens), dtype=torch.int32)
        blocks = torch.tensor(row.blocks, dtype=torch.int32)
        at.input_ids[here] = torch.tensor(row.tokens, dtype=torch.int32)
        at.carry[here.start] = row.carry
        at.positions[here] = positions
        at.write_at[here] = blocks[positions // layout.block_size] * layout.block_size + positions % layout.block_size
        at.context[index] = row.start + len(row.tokens)
        at.block_table[index, : len(row.blocks)] = blocks
        at.sample_at[index] = stop - 1
    at.query_start[layout.max_requests] = stop
    assert stop <= bucket
