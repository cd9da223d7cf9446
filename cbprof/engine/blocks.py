"""The paged KV cache's books: which blocks are free, and the block table of each seat. No tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cbprof.engine.request import Request
from cbprof.policy import WATERMARK_PCT


class BlockManager:
    """Hands out seats (rows of the block table) and KV blocks to requests, and takes them back.

    A block that is freed may be handed out at once, even while a queued batch still writes it: its next writer is a
    later batch, and batches run in order on one compute stream.
    """

    def __init__(self, num_blocks: int, block_size: int, max_requests: int, max_blocks: int) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.tables = np.zeros((max_requests, max_blocks), dtype=np.int32)
        self._free_blocks = list(range(num_blocks - 1, -1, -1))
        self._free_seats = list(range(max_requests - 1, -1, -1))

    @property
    def free_blocks(self) -> int:
        return len(self._free_blocks)

    @property
    def free_seats(self) -> int:
        return len(self._free_seats)

    def blocks_for(self, length: int) -> int:
        """How many blocks hold ``length`` tokens."""
        return -(-length // self.block_size)

    def can_seat(self, request: Request, running: Sequence[Request]) -> bool:
        """Is there a seat, and room for all tokens that the request has so far?

        What the ``running`` ones still need for the tokens that they have is theirs: a prompt that is computed in
        chunks gets its blocks chunk by chunk. Beside others, :data:`~cbprof.policy.WATERMARK_PCT` of the cache stays
        free for what they generate; else the request would soon be preempted, and computed again from its first token.
        """
        promised = sum(max(0, self.blocks_for(each.length) - len(each.blocks)) for each in running)
        if running:
            promised += self.num_blocks * WATERMARK_PCT // 100
        return bool(self._free_seats) and self.blocks_for(request.length) + promised <= self.free_blocks

    def seat(self, request: Request) -> None:
        request.seat = self._free_seats.pop()

    def can_grow(self, request: Request, length: int) -> bool:
        """Is there room for the request's first ``length`` tokens?"""
        return length <= (len(request.blocks) + len(self._free_blocks)) * self.block_size

    def grow(self, request: Request, length: int) -> None:
        while len(request.blocks) * self.block_size < length:
            block = self._free_blocks.pop()
            self.tables[request.seat, len(request.blocks)] = block
            request.blocks.append(block)

    def release(self, request: Request) -> None:
        """Take back the request's blocks and its seat. The table row stays readable until the seat is given again."""
        self._free_blocks.extend(reversed(request.blocks))
        request.blocks.clear()
        self._free_seats.append(request.seat)
        request.seat = -1
