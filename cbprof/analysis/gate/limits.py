"""Limits that a trace or a comparison must keep, written as people write them: ``1%``, ``2ms``, ``idle:1pp``."""

from __future__ import annotations

import re
from typing import NamedTuple

from cbprof.errors import UsageError

NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z%]*)\s*")
NS_PER = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


class LimitResult(NamedTuple):
    """One limit against one trace. ``text``: what was found and what was allowed, in a line."""

    name: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {self.text}"


def parse_percent(text: str, what: str, *, unit: str = "%") -> float:
    """``"1.5%"`` or ``"1.5"`` is 1.5. ``unit`` may be ``pp`` instead. Raises UsageError otherwise."""
    number, given = _split(text, what, f"1{unit}")
    if given not in {"", unit}:
        raise UsageError(f"{what}: {text!r} is not in {unit}: give a number such as 1{unit}")
    return number


def parse_duration(text: str, what: str) -> int:
    """``"2ms"`` is 2,000,000 ns. A unit is needed. Raises UsageError otherwise."""
    number, unit = _split(text, what, "2ms")
    if unit not in NS_PER:
        raise UsageError(f"{what}: {text!r} has no unit of time: give ns, us, ms or s, such as 2ms")
    return round(number * NS_PER[unit])


def parse_number(text: str, what: str) -> float:
    """A plain number. Raises UsageError otherwise."""
    number, unit = _split(text, what, "100")
    if unit:
        raise UsageError(f"{what}: {text!r} is not a plain number: give one such as 100")
    return number


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{what}: {text!r} is not a limit: give one such as {example}")
    return float(match[1]), match[2]
