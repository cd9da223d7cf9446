"""Round positions on an axis of time, and how they are written."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log10

UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
STEPS = (1, 2, 5)


def tick_step(length_ns: int, most: int) -> int:
    """The smallest 1, 2 or 5 times a power of ten (at least 1 ns) that cuts a length into at most ``most`` parts."""
    size = 1
    while True:
        for factor in STEPS:
            if factor * size * max(1, most) >= length_ns:
                return factor * size
        size *= 10


def ticks(start_ns: int, end_ns: int, most: int) -> Iterator[tuple[int, str]]:
    """Round times in [start, end], at most about ``most``, in words: ``0 s``, ``50 s``; ``225.10 s``."""
    step = tick_step(end_ns - start_ns, most)
    for time in range(-(-start_ns // step) * step, end_ns + 1, step):
        yield time, time_text(time, step, end_ns)


def time_text(time_ns: int, step_ns: int, end_ns: int) -> str:
    """A time on an axis whose ticks are ``step_ns`` apart, in the unit that suits ``end_ns``, where it ends."""
    unit, size = next(((unit, size) for unit, size in UNITS if abs(end_ns) >= size), UNITS[-1])
    digits = max(0, ceil(-log10(step_ns / size) - 1e-9))
    return f"{time_ns / size:.{digits}f} {unit}"
