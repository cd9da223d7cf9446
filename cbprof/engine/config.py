"""What to run: the engine's limits and the workload. Defaults live here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cbprof.engine.layout import SlotLayout
from cbprof.errors import UsageError
from cbprof.numbers import counted

Mode = Literal["sync", "async", "multi"]

_SMALLEST_BUCKET = 8


def check_seed(seed: int) -> None:
    """Raise :class:`UsageError` for a seed that not every generator of random numbers takes."""
    if not 0 <= seed < 2**63:
        raise UsageError(f"seed is {seed}: it must be at least 0 and less than 2**63")


@dataclass(frozen=True)
class EngineConfig:
    """The engine and its limits.

    ``max_batch`` requests and ``max_batch_tokens`` tokens at most go into one step, and at most ``prefill_chunk``
    tokens of any one request. The KV cache has ``num_blocks`` blocks of ``block_size`` tokens; 0 means as many as
    ``max_batch`` requests of ``max_context`` tokens need. ``slots``: batches in flight; in the multi-step loop, of a
    burst. ``device_index``: which of several GPUs. ``fuse``: merged projections and fused small kernels, where the
    model's family has them. ``compiled``: the model's own modules through torch.compile instead.
    """

    model: str = "tiny"
    dtype: str = "auto"
    device: str = "auto"
    device_index: int = 0
    max_batch: int = 8
    max_batch_tokens: int = 2048
    prefill_chunk: int = 2048
    max_context: int = 1024
    block_size: int = 16
    num_blocks: int = 0
    slots: int = 2
    seed: int = 0
    fuse: bool = True
    compiled: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("max_batch", "max_batch_tokens", "prefill_chunk", "max_context", "block_size", "slots"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} is {getattr(self, name)}: it must be at least 1")
        if self.max_batch_tokens < self.max_batch:
            raise UsageError(
                f"max batch tokens ({self.max_batch_tokens}) is less than the batch ({self.max_batch}): "
                "every request of a batch needs room for at least one token"
            )
        if self.num_blocks < 0:
            raise UsageError(f"num blocks is {self.num_blocks}: it must be at least 1, or 0 for as many as needed")
        blocks, size = self.cache_blocks, self.block_size
        if blocks < self.max_blocks:
            raise UsageError(
                f"{counted(blocks, 'KV block')} of {size} hold {counted(blocks * size, 'token')}, "
                f"but one request may need {self.max_context}: give more blocks, or shorten prompts and outputs"
            )

    @property
    def max_blocks(self) -> int:
        """KV blocks of one request of ``max_context`` tokens."""
        return -(-self.max_context // self.block_size)

    @property
    def cache_blocks(self) -> int:
        """KV blocks in the whole cache."""
        return self.num_blocks or self.max_batch * self.max_blocks

    @property
    def layout(self) -> SlotLayout:
        return SlotLayout(
            max_tokens=self.max_batch_tokens,
            max_requests=self.max_batch,
            max_blocks=self.max_blocks,
            block_size=self.block_size,
        )

    @property
    def buckets(self) -> tuple[int, ...]:
        """The token counts that a batch is padded to, ascending: powers of two and the values halfway between."""
        sizes = {self.max_batch, self.max_batch_tokens}
        size = _SMALLEST_BUCKET
        while size < self.max_batch_tokens:
            sizes.update((size, size + size // 2))
            size *= 2
        return tuple(sorted(size for size in sizes if size <= self.max_batch_tokens))
