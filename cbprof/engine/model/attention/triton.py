"""Paged attention for CUDA: decodes and prefill chunks in one kernel, split over the context.

Lengths, positions and block tables are read on the device, and the grid depends on nothing but the shape of the slot
and the bucket. One captured graph therefore serves every batch of a bucket, however prefill and decode mix in it.
"""

import torch
import triton
from torch import library

from cbprof.engine.layout import SlotLayout
from cbprof.engine.model.attention.kernels import attend
from cbprof.engine.model.attention.tile import Head, Tile, fitting
from cbprof.engine.model.inputs import StepInputs

_MIN_SPLIT = 256
"""Keys that a split has at least: a shorter one is not worth the joining."""
_PROGRAMS_A_MULTIPROCESSOR = 8
_DECODE_ROWS, _PREFILL_ROWS = 16, 64
"""Rows of a tile's query matrix, tokens times heads a KV head, where the device has room for them."""


class TritonAttention:
    """The :class:`~cbprof.engine.model.attention.paged.Attention` of CUDA devices."""

    def __init__(self, layout: SlotLayout, *, kv_heads: int, head: Head, device: torch.device) -> None:
        self._layout = layout
        limit = _shared_memory(device)
        self._tiles = fitting(_DECODE_ROWS, head, limit), fitting(_PREFILL_ROWS, head, limit)
        self._splits = split_count(layout, kv_heads, _multiprocessors(device))
        # One for all layers, slots and buckets: their kernels run one after the other, and each leaves it all zero.
        self._arrived = torch.zeros(
            layout.max_tokens + layout.max_requests + 1, kv_heads, dtype=torch.int32, device=device
        )

    def plan(self, inputs: StepInputs) -> "_Plan":
        # A bucket no larger than the number of rows is for decodes: a small tile wastes least on one token a row.
        decodes = len(inputs.input_ids) <= self._layout.max_requests
        return _Plan(inputs, self._layout, self._tiles[0 if decodes else 1], self._splits, self._arrived)


class _Plan:
    """An :class:`~cbprof.engine.model.attention.paged.Attend` for one bucket of one slot."""

    def __init__(self, inputs: StepInputs, layout: SlotLayout, tile: Tile, splits: int, arrived: torch.Tensor) -> None:
        self._inputs, self._block_size, self._splits = inputs, layout.block_size, splits
        self._arrived = arrived
        self._tile = tile

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        at = self._inputs
        attended: torch.Tensor = paged_attention(
            query,
            keys,
            values,
            at.query_start,
            at.context,
            at.block_table,
            self._arrived,
            self._block_size,
            scale,
            self._tile.rows,
            self._tile.keys,
            self._tile.stages,
            self._splits,
        )
        return attended


def split_count(layout: SlotLayout, kv_heads: int, multiprocessors: int) -> int:
    """Into how many stretches to cut a context, a power of 2: enough for the decode programs to fill the device."""
    programs = layout.max_requests * kv_heads
    wanted = -(-_PROGRAMS_A_MULTIPROCESSOR * multiprocessors // programs)
    useful = -(-layout.max_blocks * layout.block_size // _MIN_SPLIT)
    return 1 << (max(1, min(wanted, useful, 32)).bit_length() - 1)


def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _shared_memory(device: torch.device) -> int | None:
    """Bytes of shared memory that a program may have; None where the device does not say."""
    if device.type != "cuda":
        return None
    limit = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", None)
    return int(limit) if limit else None


@library.custom_op("cbprof::paged_attention", mutates_args=("arrived",))
def paged_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query_start: torch.Tensor,
    context: torch.Tensor,
    block_table: torch.Tensor,
    arrived: torch.Tensor,
    block_size: int,
    scale: float,
    tile: int,
    keys_a_turn: int,
    stages: int,
    splits: int,
) -> torch.Tensor:
    """Causal softmax attention of a packed batch over paged keys and values.

    ``query`` is ``[T, heads, head_dim]`` with any strides but a last one of 1; ``keys`` and ``values`` are contiguous
    ``[KV slots, kv_heads, head_dim]``; ``query_start`` ``[R + 1]``, ``context`` ``[R]`` and ``block_table`` ``[R, B]``
    are int32. ``arrived`` (int32, a count for each tile and KV head, at most ``[T + R + 1, kv_heads]``) is zero before
    and after. ``tile`` is the rows of a program's query matrix, ``keys_a_turn`` and ``stages`` are those of a
    :class:`~cbprof.engine.model.attention.tile.Tile`, ``splits`` is the stretches of a context; all but ``stages`` are
    powers of 2. Returns ``[T, heads, head_dim]``, contiguous; tokens past ``query_start[R]`` get 0.
    """
    tokens, heads, head_dim = query.shape
    kv_heads = keys.shape[1]
    rows, max_blocks = block_table.shape
    group = heads // kv_heads
    padded_group = triton.next_power_of_2(group)
    padded_head = max(16, triton.next_power_of_2(head_dim))
    tile_tokens = max(1, tile // padded_group)
    partial = torch.empty(tokens, heads, splits, head_dim, dtype=torch.float32, device=query.device)
    weight = torch.empty(tokens, heads, splits, dtype=torch.float32, device=query.device)
    out = torch.empty(tokens, heads, head_dim, dtype=query.dtype, device=query.device)
    attend[(tokens // tile_tokens + rows + 1, kv_heads, splits)](
        query,
        keys,
        values,
        query_start,
        context,
        block_table,
        out,
        partial,
        weight,
        arrived,
        scale * 1.4426950408889634,  # log2(e): exp2 is the one exponential that the hardware has
        query.stride(0),
        query.stride(1),
        tokens,
        rows,
        max_blocks,
        KV_HEADS=kv_heads,
        GROUP=group,
        PADDED_GROUP=padded_group,
        HEAD=head_dim,
        PADDED_HEAD=padded_head,
        TILE_TOKENS=tile_tokens,
        KEYS=keys_a_turn,
        BLOCK=block_size,
        SPLITS=splits,
        MIN_SPLIT=_MIN_SPLIT,
        num_warps=4,
        num_stages=stages,
    )
    return out


@paged_attention.register_fake
def _(query: torch.Tensor, *_: object) -> torch.Tensor:
    return query.new_empty(query.shape)
