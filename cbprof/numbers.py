"""Numbers in words, as a reader wants them: few digits, a unit, and nothing small rounded to zero."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10

UNKNOWN = "unknown"
UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))


def duration(ns: float | None) -> str:
    """Four significant digits in the unit that suits it: ``13.25 ms``, ``450.0 s``."""
    if ns is None:
        return UNKNOWN
    for unit, size in UNITS[:-1]:
        if ns >= size:
            return f"{significant(ns / size, 4)} {unit}"
    return f"{ns:.0f} ns"


def signed_duration(ns: float, *, plus: bool = False) -> str:
    """A duration that may be negative: ``-13.25 ms``. ``plus``: what is not has a sign too."""
    sign = "-" if ns < 0 else "+" if plus else ""
    return f"{sign}{duration(round(abs(ns)))}"


def percent(value: float | None) -> str:
    """Every percentage of cbprof: two decimals, and what is almost nothing or almost all does not pass for it.

    ``24.34 %``, ``<0.01 %``, ``>99.99 %``; 0 and 100 themselves are ``0.00 %`` and ``100.00 %``.
    """
    if value is None:
        return UNKNOWN
    if 0 < value < 0.005:
        return "<0.01 %"
    return ">99.99 %" if 99.995 <= value < 100 else f"{value:.2f} %"


def part_of_it(part: float, whole: float) -> str:
    """The largest part of a whole just named: ``most of it`` if more than half, else ``the largest part, 38.20 %,``."""
    return "most of it" if 2 * part > whole else f"the largest part, {percent(100 * part / whole if whole else None)},"


def ratio(value: float | None) -> str:
    """Three significant digits, one more near 1, where it matters, at most three decimals: ``1.32x``, ``1.002x``."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.001:
        return "<0.001x"
    if 0 < value < 0.1:
        return f"{value:.3f}x"
    return f"{significant(value, 4 if 0.9 < value < 1.1 else 3)}x"


def rate(value: float | None) -> str:
    """A number of things per second: ``564``, ``1,208``, ``7.25``."""
    return UNKNOWN if value is None else significant(value, 3)


def count(value: int) -> str:
    return f"{value:,}"


def counted(value: int, one: str, many: str | None = None) -> str:
    """So many of a thing: ``1 step``, ``1,024 steps``; ``many`` where it is not ``one`` with an s."""
    return f"{count(value)} {one if value == 1 else many or f'{one}s'}"


def significant(value: float, digits: int) -> str:
    """Fixed point with this many significant digits, and all digits of the integer part."""
    decimals = max(0, digits - 1 - floor(log10(value))) if value > 0 else 0
    return f"{value:,.{decimals}f}"


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
