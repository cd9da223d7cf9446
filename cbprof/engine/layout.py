"""What a slot holds: the inputs of one batch, packed into a single int32 buffer so that one copy moves them all.

One layout serves the pinned host buffer and the device buffer of a slot; :meth:`SlotLayout.fields` says where each
field lies, and both numpy arrays and torch tensors can be cut by it. ``T`` is the most tokens of a batch, ``R`` the
most requests, ``B`` the most KV blocks of one request.

===============  =========  ==========================================================================================
field            shape      meaning
===============  =========  ==========================================================================================
input_ids        [T]        token ids; a carried-over token holds ``PLACEHOLDER``
carry            [T]        row of the previous batch whose sampled token belongs here, -1 where the id is known
positions        [T]        position of the token in its request
write_at         [T]        KV slot (block * block_size + offset) that the token's key and value go to
query_start      [R + 1]    first token of each row, in the packed batch; rows that are not used repeat the end
context          [R]        length of each row's context, this batch's tokens included; 0 for rows that are not used
block_table      [R, B]     KV blocks of each row, in order
sample_at        [R]        packed index of the token whose logits give the row's next token
noise_key        [R]        hash of (seed, request, position) that the sampling noise of the row is a function of
temperature      [R]        float32 bits; 0 is greedy
===============  =========  ==========================================================================================

The output of a batch is ``[R]`` int32: one token a row, meaningful where the row's last known token was in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

PLACEHOLDER = 0
"""The id that stands for a token which only the device knows yet; any valid id, it is replaced before it is read."""


@dataclass(frozen=True)
class Field:
    """Where one field lies: ``offset`` in int32 elements, and its shape."""

    offset: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.offset + prod(self.shape)


@dataclass(frozen=True)
class SlotLayout:
    """The shapes of a slot. Sizes are counts; ``block_size`` is in tokens."""

    max_tokens: int
    max_requests: int
    max_blocks: int
    block_size: int

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Each field of the input buffer, in order. Offsets are multiples of 4 elements (16 bytes)."""
        tokens, rows = self.max_tokens, self.max_requests
        shapes = {
            "input_ids": (tokens,),
            "carry": (tokens,),
            "positions": (tokens,),
            "write_at": (tokens,),
            "query_start": (rows + 1,),
            "context": (rows,),
            "sample_at": (rows,),
            "noise_key": (rows,),
            "temperature": (rows,),
            "block_table": (rows, self.max_blocks),
        }
        fields, offset = {}, 0
        for name, shape in shapes.items():
            fields[name] = Field(offset, shape)
            offset += -(-prod(shape) // 4) * 4
        return fields

    @property
    def max_context(self) -> int:
        """Most tokens that the block table of one request can name."""
        return self.max_blocks * self.block_size

    @property
    def input_size(self) -> int:
        """Length of the input buffer in int32 elements."""
        last = list(self.fields.values())[-1]
        return -(-last.stop // 4) * 4

    @property
    def output_size(self) -> int:
        """Length of the output buffer in int32 elements."""
        return self.max_requests
