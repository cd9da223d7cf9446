"""Times of a Chrome trace in integer nanoseconds, exact.

Files give microseconds with three decimals. Float64 tells two such values apart, and gives back the nanosecond, as
long as its own steps are finer than a nanosecond: below 2^43 us (102 days). Times since 1970 lie far beyond that, so
they are read from the text.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt

from cbprof.trace import Int64

EXACT_BELOW_US = float(2**43)

# Times and durations beyond 146 years are not believed, so that an end never overflows int64.
MAX_NS = 1 << 62

NOT_A_TIME = np.iinfo(np.int64).min
"""Stands where a file has no time, or one that is not finite or beyond ``MAX_NS``."""


def from_floats(microseconds: npt.NDArray[np.float64]) -> Int64 | None:
    """The nanoseconds of each value; None where one is so large that only its text is exact."""
    known = np.isfinite(microseconds)
    if (np.abs(microseconds, where=known, out=np.zeros_like(microseconds)) >= EXACT_BELOW_US).any():
        return None
    whole = np.floor(np.where(known, microseconds, 0))  # exact, and so is the difference
    ns = whole.astype(np.int64) * 1000 + np.rint((np.where(known, microseconds, 0) - whole) * 1000).astype(np.int64)
    return np.where(known, ns, NOT_A_TIME)


def from_text(text: bytes) -> int:
    """The nanoseconds of a number, or of a string that holds one."""
    text = text.strip(b'" \t\r\n')
    whole, point, fraction = text.partition(b".")
    if whole.isdigit() and (fraction.isdigit() or not point) and len(whole) <= 16 and len(fraction) <= 3:
        ns = int(whole) * 1000 + int(fraction.ljust(3, b"0"))
        return ns if ns < MAX_NS else NOT_A_TIME
    try:
        value = Decimal(text.decode("ascii"))
        return round(value * 1000) if value.is_finite() and abs(value) < MAX_NS // 1000 else NOT_A_TIME
    except (ArithmeticError, ValueError):
        return NOT_A_TIME
