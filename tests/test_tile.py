"""The tile of attention that fits a device, and failures of Triton in one line. No GPU, no Triton, no torch."""

from __future__ import annotations

import pytest

from cbprof.engine.model.attention.tile import Head, Tile, fitting, shared_bytes, triton_failure
from cbprof.errors import UsageError

H200, A100, L4 = 232_448, 166_912, 101_376
LIMITS = [H200, A100, L4]


@pytest.mark.parametrize("head", [Head(4, 128, 2), Head(4, 64, 2), Head(8, 128, 2), Head(4, 64, 4)])
def test_a_large_gpu_has_the_whole_tile(head: Head) -> None:
    assert [fitting(rows, head, H200) for rows in (16, 64)] == [Tile(16, 64, 3), Tile(64, 64, 3)]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("wanted", [16, 64])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize(("size", "itemsize"), [(64, 2), (80, 2), (128, 2), (256, 2), (64, 4), (128, 4)])
def test_every_common_head_fits_99_kilobytes(limit: int, wanted: int, group: int, size: int, itemsize: int) -> None:
    head = Head(group, size, itemsize)
    tile = fitting(wanted, head, limit)
    assert shared_bytes(tile, head) <= limit
    assert tile.rows <= wanted
    for part in (tile.rows, tile.keys):
        assert part >= 16
        assert part & (part - 1) == 0


def test_the_bytes_are_those_of_the_rows_that_a_program_gets() -> None:
    wide = Head(71, 64, 2)  # one token of falcon-7b is 128 rows, whatever is asked for
    assert [wide.rows(rows) for rows in (16, 64, 256)] == [128, 128, 256]
    assert fitting(16, wide, None) == Tile(128, 64, 3)
    assert shared_bytes(Tile(128, 64, 3), wide) == (128 * 64 + 3 * 2 * 64 * 64 + 128 * 64) * 2
    assert shared_bytes(fitting(16, wide, L4), wide) <= L4
    assert shared_bytes(Tile(128, 16, 1), Head(71, 64, 2)) == 4 * 128 * 64  # the results are what is largest


def test_what_fits_nowhere_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        fitting(16, Head(71, 256, 4), L4)
    assert str(caught.value) == (
        "attention with 71 query heads of size 256 to a KV head, of 4 bytes a number, does not fit the 99 KB of shared "
        "memory of this GPU: use --dtype bfloat16, or --device host"
    )


class OutOfResources(Exception):  # noqa: N818 - Triton's name
    __module__ = "triton.runtime.errors"


def test_a_failure_of_triton_is_one_line() -> None:
    triton = OutOfResources("out of resource: shared memory,\n  Required: 131072, Hardware limit: 101376")
    wrapped = RuntimeError("backend failed")
    wrapped.__cause__ = triton
    for error in (triton, wrapped):
        told = triton_failure(error, "NVIDIA L4", "gemma", "bfloat16")
        assert str(told) == (
            "NVIDIA L4 cannot run a kernel for gemma in bfloat16 (OutOfResources: out of resource: shared memory, "
            "Required: 131072, Hardware limit: 101376): use another --dtype, --no-fuse, or --device host"
        )
    assert triton_failure(ValueError("no"), "NVIDIA L4", "gemma", "bfloat16") is None
