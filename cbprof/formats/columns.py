"""Spans by the column: how importers of large files build a trace without a Python loop over its spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cbprof.meta import Meta
from cbprof.trace import NONE, Int8, Int32, Int64, Lane, RequestTable, StepTable, Trace

Thing = TypeVar("Thing", bound=Hashable)
Number = TypeVar("Number", np.int8, np.int32, np.int64)


class Index(Generic[Thing]):
    """Numbers things in the order in which they are first met: names, lanes."""

    def __init__(self) -> None:
        self._codes = defaultdict[Thing, int](count().__next__)  # without a Python call a thing

    def code(self, thing: Thing) -> int:
        return self._codes[thing]

    def codes(self, things: Iterable[Thing]) -> Int32:
        return np.fromiter(map(self._codes.__getitem__, things), dtype=np.int32)

    def things(self) -> tuple[Thing, ...]:
        """All of them; a thing stands at its code."""
        return tuple(self._codes)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some spans, in any order: columns of one length, as in :class:`~cbprof.trace.Trace`."""

    start_ns: Int64
    dur_ns: Int64
    link: Int64
    name_id: Int32
    lane_id: Int32
    kind: Int8

    def __len__(self) -> int:
        return len(self.start_ns)


def assemble(blocks: Sequence[Block], names: Sequence[str], lanes: Sequence[Lane], meta: Meta) -> Trace:
    """The trace of all these spans, sorted. They carry no step and no slot, and there are no requests."""
    blocks = [block for block in blocks if len(block)] or [_EMPTY]
    start = _joined([block.start_ns for block in blocks])
    dur = _joined([block.dur_ns for block in blocks])
    order = _in_order(start, dur)
    none = np.empty(0, dtype=np.int64)
    return Trace(
        start_ns=start[order],
        dur_ns=dur[order],
        link=_joined([block.link for block in blocks])[order],
        name_id=_joined([block.name_id for block in blocks])[order],
        step=np.full(len(order), NONE, dtype=np.int32),
        lane_id=_joined([block.lane_id for block in blocks])[order],
        kind=_joined([block.kind for block in blocks])[order],
        slot=np.full(len(order), NONE, dtype=np.int8),
        names=tuple(names),
        lanes=tuple(lanes),
        steps=StepTable(none.astype(np.int32), none, none, none, none.astype(np.int8)),
        requests=RequestTable(none, none, none.astype(np.int8)),
        meta=meta,
    )


def _joined(columns: Sequence[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _in_order(start: Int64, dur: Int64) -> Int64:
    """The order of (start, longest first). Few spans start together, so sorting by start does nearly all of it."""
    order = np.argsort(start, kind="stable")
    same = np.diff(start[order]) == 0
    ties = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False)) if same.any() else np.empty(0, np.int64)
    rows = order[ties]
    order[ties] = rows[np.lexsort((-dur[rows], start[rows]))]
    return order


_EMPTY = Block(
    *(np.empty(0, dtype=kind) for kind in (np.int64, np.int64, np.int64, np.int32, np.int32, np.int8))  # type: ignore[arg-type]
)
