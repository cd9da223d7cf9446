"""The records of a profiler as columns, before they become spans: what ran on a device, and what the host called."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from cbprof.trace import Int8, Int32, Int64

ABSENT = -(1 << 62)
"""Stands for a value that is not there or is no integer. Times are smaller: 2^62 ns are 146 years."""

_MOST_DEVICES = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Spans as the file has them; columns of one length.

    ``process`` is a process id below the bits of its machine, ``correlation`` joins a call with what it launched,
    within its process; both may be ``ABSENT``. Rows on a device have ``device`` and ``stream``, a number within its
    ``context`` (which may be ``ABSENT``); rows of the host have ``thread``, the thread id below the bits of its
    process, which may be ``ABSENT``.
    """

    start: Int64
    end: Int64
    kind: Int8
    name_id: Int32
    process: Int64
    correlation: Int64
    device: Int64
    context: Int64
    stream: Int64
    thread: Int64

    def __len__(self) -> int:
        return len(self.start)

    def select(self, mask: npt.NDArray[np.bool_]) -> Rows:
        """The rows where ``mask`` holds."""
        return Rows(**{each.name: getattr(self, each.name)[mask] for each in fields(self)})


@dataclass(slots=True)
class Findings:
    """What the reader noticed: counts by name, and warnings for the user."""

    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    reliable: bool = True

    def count(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def doubt(self, warning: str) -> None:
        """Something that makes the figures untrustworthy."""
        self.warnings.append(warning)
        self.reliable = False


def absent(size: int) -> Int64:
    """A column without any value."""
    return np.full(size, ABSENT, dtype=np.int64)


def is_device(number: Int64) -> npt.NDArray[np.bool_]:
    """Which numbers can be those of devices: 32 bits hold them."""
    return (number >= 0) & (number < _MOST_DEVICES)


def is_span(start: Int64, end: Int64) -> npt.NDArray[np.bool_]:
    """Which rows have a start and an end that can be believed."""
    return (start > ABSENT) & (end < -ABSENT) & (end >= start)
