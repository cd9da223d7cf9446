"""The host half of sampling noise: one 32-bit key a row, a pure function of (seed, request, position).

The device half (:mod:`cbprof.engine.model.sampling`) hashes that key with each vocabulary id. Nothing else enters, so a
request draws the same noise whichever row it rides in, whoever rides with it, and whether the loop is sync or async.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MIX_ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B))
"""``lowbias32`` by Chris Wellons (nullprogram.com/blog/2018/07/31): xor-shift right, then multiply, twice ..."""
MIX_LAST_SHIFT = 16
"""... and one more xor-shift."""

_WORD = 0xFFFFFFFF
_WEYL = 0x9E3779B9  # 2**32 / golden ratio: keeps 0 from being a fixed point of the mix


def noise_keys(seed: int, requests: npt.ArrayLike, positions: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """The noise key of each (request, position).

    ``requests`` and ``positions`` are integers of one shape, of which the low 32 bits count; of ``seed`` the low 64 do.
    Returns int32 of that shape. Each part is mixed before it meets the others, so that the keys of two requests never
    are one sequence, shifted.
    """
    words = (seed & _WORD, seed >> 32 & _WORD, requests, positions)
    key = np.zeros((), dtype=np.uint32)
    for word in words:
        key = _mix(key ^ _mix(np.asarray(word).astype(np.uint32) + np.array([_WEYL], dtype=np.uint32)))
    return key.reshape(np.broadcast_shapes(np.shape(requests), np.shape(positions))).view(np.int32)


def _mix(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """``lowbias32``, element by element."""
    for shift, factor in MIX_ROUNDS:
        bits = (bits ^ bits >> np.uint32(shift)) * np.array([factor], dtype=np.uint32)
    return bits ^ bits >> np.uint32(MIX_LAST_SHIFT)
