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
# Arrays, not scalars: those would warn of the overflow that is meant.
_WEYL = np.array([0x9E3779B9], dtype=np.uint32)  # 2**32 / golden ratio: keeps 0 from being a fixed point of the mix
_ROUNDS = tuple((np.uint32(shift), np.array([factor], dtype=np.uint32)) for shift, factor in MIX_ROUNDS)


def noise_keys(seed: int, requests: npt.ArrayLike, positions: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """The noise key of each (request, position).

    ``requests`` and ``positions`` are integers of one shape, of which the low 32 bits count; of ``seed`` the low 64 do.
    Returns int32 of that shape. Each part is mixed before it meets the others, so that the keys of two requests never
    are one sequence, shifted.
    """
    keys = position_keys(request_keys(seed, requests), positions)
    return keys.reshape(np.broadcast_shapes(np.shape(requests), np.shape(positions)))


def request_keys(seed: int, requests: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """The part of the keys that stays while a request lives; for :func:`position_keys`."""
    key = np.zeros(1, dtype=np.uint32)
    for word in (seed & _WORD, seed >> 32 & _WORD, requests):
        key = _extend(key, word)
    return key


def position_keys(keys: npt.NDArray[np.uint32], positions: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """The noise keys of ``positions`` of the requests that ``keys`` are from."""
    return _extend(keys, positions).view(np.int32)


def _extend(key: npt.NDArray[np.uint32], word: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """``key`` with one more word in it."""
    return _mix(key ^ _mix(np.asarray(word).astype(np.uint32) + _WEYL))


def _mix(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """``lowbias32``, element by element."""
    for shift, factor in _ROUNDS:
        bits = (bits ^ bits >> shift) * factor
    return bits ^ bits >> np.uint32(MIX_LAST_SHIFT)
