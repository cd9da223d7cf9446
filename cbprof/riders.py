"""Which requests ride in a step, and with how many tokens: packed for a file, and as columns for analysis.

A decode row works on the one token that its request got last, so that its number says all. A prefill row works on a
part of a prompt, or of what is computed again after a preemption::

    {"decodes": "0-31,40", "prefills": [[41, 512, 256, 1]]}      request, first position, tokens, whether it samples
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MOST_PACKED = 1 << 16
"""So many requests a packed text may stand for; more are not believed."""

_RANGE = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")
_LARGEST = (1 << 63) - 1  # what a column holds


class PrefillRow(NamedTuple):
    """``tokens`` of ``request`` from position ``start`` on. ``samples``: they are its last, and bring a token."""

    request: int
    start: int
    tokens: int
    samples: bool


class Riders(NamedTuple):
    """The requests of one step: those that decode one token each, and rows of prefill."""

    decodes: tuple[int, ...]
    prefills: tuple[PrefillRow, ...]

    @property
    def size(self) -> int:
        return len(self.decodes) + len(self.prefills)

    def renumbered(self, more: int) -> Riders:
        """The same, with ``more`` added to the number of each request."""
        return Riders(
            tuple(request + more for request in self.decodes),
            tuple(row._replace(request=row.request + more) for row in self.prefills),
        )


@dataclass(frozen=True, slots=True)
class RiderTable:
    """One row for each request of each step, sorted by step. ``start``: -1 where it is not known.

    ``decode``: 1 for a row of decode. ``samples``: 1 where the row brings a token.
    """

    step: npt.NDArray[np.int32]
    request: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    decode: npt.NDArray[np.int8]
    samples: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.step)


def rider_table(steps: Mapping[int, Riders]) -> RiderTable:
    """The columns of all steps. Where a decode row begins follows from the row of its request before it."""
    rows: list[tuple[int, int, int, int, bool, bool]] = []
    reached: dict[int, int] = {}
    for step, riders in sorted(steps.items()):
        for request in riders.decodes:
            start = reached.get(request, -1)
            rows.append((step, request, start, 1, True, True))
            if start >= 0:
                reached[request] = start + 1
        for row in riders.prefills:
            rows.append((step, row.request, row.start, row.tokens, False, row.samples))
            reached[row.request] = row.start + row.tokens
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    return RiderTable(
        step=table[:, 0].astype(np.int32),
        request=table[:, 1],
        start=table[:, 2],
        tokens=table[:, 3],
        decode=table[:, 4].astype(np.int8),
        samples=table[:, 5].astype(np.int8),
    )


def by_step(table: RiderTable) -> dict[int, Riders]:
    """The packed form again."""
    found: dict[int, tuple[list[int], list[PrefillRow]]] = {}
    columns = (table.step, table.request, table.start, table.tokens, table.decode, table.samples)
    for step, request, start, tokens, decode, samples in zip(*(each.tolist() for each in columns), strict=True):
        decodes, prefills = found.setdefault(step, ([], []))
        if decode:
            decodes.append(request)
        else:
            prefills.append(PrefillRow(request, start, tokens, bool(samples)))
    return {step: Riders(tuple(decodes), tuple(prefills)) for step, (decodes, prefills) in found.items()}


NO_RIDERS = rider_table({})


def pack(requests: Iterable[int]) -> str:
    """``0-31,40``: runs of ascending numbers, none of them negative, in the order that they have."""
    parts: list[str] = []
    first = last = -2
    for request in requests:
        if request != last + 1:
            if last >= 0:
                parts.append(_run(first, last))
            first = request
        last = request
    if last >= 0:
        parts.append(_run(first, last))
    return ",".join(parts)


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def unpack(text: object) -> tuple[int, ...]:
    """The numbers of :func:`pack`. Raises ValueError where it is not such a text, or stands for too many."""
    if not isinstance(text, str):
        raise ValueError("not requests")
    found: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"not requests: {part[:40]!r}")
        first = int(match[1])
        last = int(match[2] or first)
        if last > _LARGEST or not 0 <= last - first < MOST_PACKED - len(found):
            raise ValueError(f"too many requests: {part[:40]!r}")
        found.extend(range(first, last + 1))
    return tuple(found)


def pack_riders(riders: Riders) -> dict[str, object]:
    """The two args of a ``schedule`` span."""
    prefills = [[row.request, row.start, row.tokens, int(row.samples)] for row in riders.prefills]
    return {"decodes": pack(riders.decodes), **({"prefills": prefills} if prefills else {})}


def unpack_riders(decodes: object, prefills: object) -> Riders:
    """The riders of the two args. Raises ValueError where they are not well formed."""
    if not isinstance(prefills, Sequence) or isinstance(prefills, str):
        raise ValueError("not the requests of a step")
    rows: list[PrefillRow] = []
    for row in prefills:
        if not isinstance(row, Sequence) or len(row) != 4 or any(type(each) is not int for each in row):
            raise ValueError("not a row of prefill")
        request, start, tokens, samples = row
        if not all(-1 <= each <= _LARGEST for each in row) or tokens < 0 or request < 0:
            raise ValueError("not a row of prefill")
        rows.append(PrefillRow(request, start, tokens, bool(samples)))
    return Riders(unpack(decodes), tuple(rows))
