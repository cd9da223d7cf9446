"""Numbers in words, as a reader wants them: few digits, a unit, and nothing small rounded to zero."""

from __future__ import annotations

from math import floor, log10

UNKNOWN = "unknown"
UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def duration(ns: float | None) -> str:
    """Four significant digits in the unit that suits it: ``13.25 ms``, ``450.0 s``."""
    if ns is None:
        return UNKNOWN
    for unit, size in UNITS:
        if ns >= size:
            return f"{significant(ns / size, 4)} {unit}"
    return f"{ns:.0f} ns"


def percent(value: float | None) -> str:
    """Two decimals; what is small but not zero does not pass for zero: ``24.34 %``, ``<0.01 %``."""
    if value is None:
        return UNKNOWN
    return "<0.01 %" if 0 < value < 0.005 else f"{value:.2f} %"


def short_percent(value: float) -> str:
    """One decimal, where four of them share a line: ``75.1 %``."""
    return "<0.1 %" if 0 < value < 0.05 else f"{value:.1f} %"


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


def significant(value: float, digits: int) -> str:
    """Fixed point with this many significant digits, and all digits of the integer part."""
    decimals = max(0, digits - 1 - floor(log10(value))) if value > 0 else 0
    return f"{value:,.{decimals}f}"
