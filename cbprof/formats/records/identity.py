"""Who is who in the records of a profiler: processes, threads, streams, and which call launched what.

One file may hold many processes. Correlation ids and stream numbers mean something only within one: a launch is joined
to what it launched by (process, correlation id).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cbprof.formats.columns import Block, Index
from cbprof.formats.records.rows import ABSENT, Findings, Rows
from cbprof.numbers import counted
from cbprof.trace import NONE, Int32, Int64, Lane

PROCESS_SHIFT = 24
"""A process id has as many bits, below those of its machine; a thread id, below those of its process."""

_ID_BITS = (1 << PROCESS_SHIFT) - 1


def name_processes(rows: Sequence[Rows], found: Findings) -> list[Rows]:
    """Rows without a process get the only process of the file, where it has just one."""
    known = np.unique(np.concatenate([_NOTHING, *(np.unique(each.process) for each in rows)]))
    known = known[known != ABSENT]
    unnamed = sum(int((each.process == ABSENT).sum()) for each in rows)
    if unnamed and len(known) > 1:
        events, processes = counted(unnamed, "event does", "events do"), counted(len(known), "process", "processes")
        found.warnings.append(f"{events} not say which of {processes} made it: the launches are unknown")
        return list(rows)
    only = known[0] if len(known) else 0
    return [replace(each, process=np.where(each.process == ABSENT, only, each.process)) for each in rows]


def links(rows: Sequence[Rows]) -> list[Int64]:
    """A number for each (process, correlation id), the same in all of ``rows``; -1 where either is unknown."""
    if not rows:
        return []
    process = np.concatenate([each.process for each in rows])
    correlation = np.concatenate([each.correlation for each in rows])
    _, number = distinct(process, correlation)
    number[(process == ABSENT) | (correlation == ABSENT)] = NONE
    return np.split(number, np.cumsum([len(each) for each in rows])[:-1])


def blocks(rows: Sequence[Rows], lanes: Lanes) -> list[Block]:
    """The rows as spans; those of one launch carry one link."""
    return [
        Block(each.start, each.end - each.start, link, each.name_id, lanes.of(each), each.kind)
        for each, link in zip(rows, links(rows), strict=True)
    ]


def extent(rows: Sequence[Rows]) -> tuple[int, int] | None:
    """The first start and the last end of anything that was recorded."""
    rows = [each for each in rows if len(each)]
    return (min(int(each.start.min()) for each in rows), max(int(each.end.max()) for each in rows)) if rows else None


class Lanes:
    """The lanes of the timeline: the streams of each device in order, then host threads under their names.

    ``ranks`` maps a process to its rank, ``thread_names`` a thread to its name, where the file knows them.
    """

    def __init__(self, rows: Sequence[Rows], ranks: Mapping[int, int], thread_names: Mapping[int, str]) -> None:
        self.index = Index[Lane]()
        self._ranks = ranks
        self._thread_names = thread_names
        self._many_processes = len({process for each in rows for process in np.unique(each.process).tolist()}) > 1
        streams = {place for each in rows for place in distinct(*_place_of_stream(each))[0] if place[0] != ABSENT}
        self._streams = dict(self._name_streams(streams))
        for place in sorted(streams):
            self.index.code(self._streams[place])

    def of(self, rows: Rows) -> Int32:
        """The lane of each row."""
        places, which = distinct(*_place_of_stream(rows), rows.thread)
        return self.index.codes(self._lane(*place) for place in places)[which]

    def _name_streams(self, streams: Iterable[_Place]) -> Iterator[tuple[_Place, Lane]]:
        """A lane for each stream. Each process and context numbers its own streams: where two use one number on a
        device, the names of their lanes say whose they are.
        """
        owners: dict[Lane, list[_Place]] = defaultdict(list)
        for device, stream, process, context in sorted(streams):
            lane = Lane(f"stream {stream}", device, self._ranks.get(process, NONE))
            owners[lane].append((device, stream, process, context))
        for lane, places in owners.items():
            several = len({process for _, _, process, _ in places}) > 1
            contexts = {(process, context) for _, _, process, context in places if context != ABSENT}
            shared = len(contexts) > len({process for process, _ in contexts})
            for place in places:
                name = lane.name + (f" of process {place[2] & _ID_BITS}" if several else "")
                name += f", context {place[3]}" if shared and place[3] != ABSENT else ""
                yield place, replace(lane, name=name)

    def _lane(self, device: int, stream: int, process: int, context: int, thread: int) -> Lane:
        if device != ABSENT:
            return self._streams[device, stream, process, context]
        rank = self._ranks.get(process, NONE)
        name = "thread" if thread == ABSENT else f"thread {thread & _ID_BITS}"
        if self._thread_names.get(thread):
            name += f" ({self._thread_names[thread]})"
        return Lane(f"{name} of process {process & _ID_BITS}" if self._many_processes else name, rank=rank)


_Place = tuple[int, ...]  # device, stream, process, context


def _place_of_stream(rows: Rows) -> tuple[Int64, Int64, Int64, Int64]:
    return rows.device, rows.stream, rows.process, rows.context


def distinct(*columns: Int64) -> tuple[list[tuple[int, ...]], Int64]:
    """The different rows of some columns, and for each row which of them it is."""
    _, which = np.unique(columns[0], return_inverse=True)
    for column in columns[1:]:
        values, code = np.unique(column, return_inverse=True)
        _, which = np.unique(which * len(values) + code, return_inverse=True)  # below (number of rows)^2
    size = int(which.max(initial=NONE)) + 1
    example = np.empty(size, dtype=np.int64)
    example[which] = np.arange(len(which))
    return list(zip(*(column[example].tolist() for column in columns), strict=True)), which


_NOTHING = np.empty(0, dtype=np.int64)
