"""Which tile of attention fits the shared memory of a device, and what is said of a kernel that cannot be had.

Plain arithmetic, so that it is read and tested without a GPU and without Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cbprof.errors import UsageError

LEAST = 16
"""Rows and keys that a product of Triton's has at least."""

_TURNS = ((64, 3), (64, 2), (32, 2), (16, 2), (16, 1))
"""Keys a turn and turns in flight, the fastest first. The first is Triton's own choice of stages."""


class Tile(NamedTuple):
    """The shape of a program. ``rows``: of its query matrix, tokens times heads a KV head, both padded to powers of 2.
    ``keys``: of a turn. ``stages``: turns whose keys and values are in shared memory at once."""

    rows: int
    keys: int
    stages: int


class Head(NamedTuple):
    """What of a model's attention a tile depends on. ``group``: query heads that share a KV head."""

    group: int
    size: int
    itemsize: int

    def rows(self, tile: int) -> int:
        """The rows that a program gets which is asked for ``tile``: whole tokens, of which there is one at least."""
        padded = _power_of_2(self.group)
        return max(1, tile // padded) * padded


def shared_bytes(tile: Tile, head: Head) -> int:
    """The shared memory that a program needs at most: the queries, the keys and values of all turns in flight and the
    probabilities, or instead of these, at its end, the float32 results on their way to another layout."""
    width = max(LEAST, _power_of_2(head.size))
    loop = (tile.rows * width + tile.stages * 2 * tile.keys * width + tile.rows * tile.keys) * head.itemsize
    return max(loop, 4 * tile.rows * width)


def fitting(wanted: int, head: Head, limit: int | None) -> Tile:
    """The tile of at most ``wanted`` rows that fits ``limit`` bytes of shared memory (None: any fits).

    More rows than asked for are had where one token has more. Raises :class:`UsageError` where none fits.
    """
    for keys, stages in _TURNS:
        for rows in _halves(wanted):
            tile = Tile(head.rows(rows), keys, stages)
            if limit is None or shared_bytes(tile, head) <= limit:
                return tile
    raise UsageError(
        f"attention with {head.group} query heads of size {head.size} to a KV head, of {head.itemsize} bytes a number, "
        f"does not fit the {(limit or 0) >> 10} KB of shared memory of this GPU: use --dtype bfloat16, or --device host"
    )


def triton_failure(error: BaseException, device: str, model: str, dtype: str) -> UsageError | None:
    """What Triton could not do, in one line; None where the error is not Triton's, nor caused by one."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__module__.partition(".")[0] == "triton":
            said = " ".join(str(cause).split())[:200]
            return UsageError(
                f"{device} cannot run a kernel for {model} in {dtype} ({type(cause).__name__}: {said}): use another "
                "--dtype, --no-fuse, or --device host"
            )
        cause = cause.__cause__ or cause.__context__
    return None


def _halves(wanted: int) -> Iterator[int]:
    while wanted >= LEAST:
        yield wanted
        wanted //= 2


def _power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()
