"""Who is who in an Nsight Systems export: processes, GPUs, threads, and which call launched what.

One export may hold many processes. Correlation ids and device numbers mean something only within one: a launch is
joined to what it launched by (process, correlation id), and where processes number the GPUs differently, each GPU goes
by its number in ``TARGET_INFO_CUDA_DEVICE``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cbprof.formats.columns import Index
from cbprof.formats.nsys.database import ABSENT, Database
from cbprof.formats.nsys.rows import PROCESS_SHIFT, Findings, Rows
from cbprof.trace import NONE, Int32, Int64, Lane

_ID_BITS = (1 << 24) - 1  # of a process, below the bits of its machine; of a thread, below those of its process
_ON_HOST = (1 << 31) - 1  # the device of a graph whose first node runs on the host (CUpti_ActivityGraphTrace2)


def name_processes(rows: Sequence[Rows], found: Findings) -> list[Rows]:
    """Rows without a process get the only process of the file, where it has just one."""
    known = np.unique(np.concatenate([_NOTHING, *(np.unique(each.process) for each in rows)]))
    known = known[known != ABSENT]
    unnamed = sum(int((each.process == ABSENT).sum()) for each in rows)
    if unnamed and len(known) > 1:
        found.warnings.append(
            f"{unnamed} events do not say to which of {len(known)} processes they belong: their launches are unknown"
        )
        return list(rows)
    only = known[0] if len(known) else 0
    return [replace(each, process=np.where(each.process == ABSENT, only, each.process)) for each in rows]


def links(rows: Sequence[Rows]) -> list[Int64]:
    """A number for each (process, correlation id), the same in all of ``rows``; -1 where either is unknown."""
    if not rows:
        return []
    process = np.concatenate([each.process for each in rows])
    correlation = np.concatenate([each.correlation for each in rows])
    _, number = _distinct(process, correlation)
    number[(process == ABSENT) | (correlation == ABSENT)] = NONE
    return np.split(number, np.cumsum([len(each) for each in rows])[:-1])


def place_graphs(rows: Sequence[Rows], found: Findings) -> list[Rows]:
    """Graphs that start on the host go to the device that their stream, or else their process, works on."""
    homes: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for each in rows:
        for process, stream, device in _distinct(each.process, each.stream, each.device)[0]:
            if device != _ON_HOST:
                homes[process, stream].add(device)
                homes[process,].add(device)
    placed = []
    for each in rows:
        places, which = _distinct(each.process, each.stream, each.device)
        home = np.array([_home(homes, *place) for place in places], dtype=np.int64)[which]
        kept = home != ABSENT
        lost = int(len(kept) - kept.sum())
        if lost:
            found.count("n_dropped", lost)
            found.doubt(f"{lost} replays of CUDA graphs do not say on which device they ran: they are left out")
        placed.append(replace(each, device=home).select(kept))
    return placed


def _home(homes: dict[tuple[int, ...], set[int]], process: int, stream: int, device: int) -> int:
    if device != _ON_HOST:
        return device
    candidates = (homes[process, stream], homes[process,])
    return next((min(devices) for devices in candidates if len(devices) == 1), ABSENT)


def number_gpus(database: Database, rows: Sequence[Rows], found: Findings) -> list[Rows]:
    """The rows with the machine's numbers of the GPUs, where two processes call different GPUs by one number."""
    listed = database.integers("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
    table = zip(*(listed[column].tolist() for column in ("pid", "cudaId", "gpuId")), strict=True)
    gpu_of = {(pid, device): gpu for pid, device, gpu in table if gpu >= 0}
    gpus: dict[int, set[int]] = defaultdict(set)
    users: dict[int, set[int]] = defaultdict(set)
    for each in rows:
        for process, device in _distinct(each.process, each.device)[0]:
            gpus[device].add(gpu_of.get((process & _ID_BITS, device), NONE))
            users[device].add(process)
    if all(len(each) == 1 for each in gpus.values()):
        for device in sorted(users):
            if len(users[device]) > 1 and NONE in gpus[device]:
                found.warnings.append(
                    f"{len(users[device])} processes use a device {device}; the file does not say whether it is one GPU"
                )
        return list(rows)
    if any(NONE in each for each in gpus.values()):
        found.doubt("processes number the GPUs differently, and not all of them say how: GPUs may be mixed up")
        return list(rows)
    found.warnings.append("the processes number the GPUs differently: devices go by their numbers on the machine")
    numbered = []
    for each in rows:
        places, which = _distinct(each.process, each.device)
        gpu = np.array([gpu_of[process & _ID_BITS, device] for process, device in places], dtype=np.int64)
        numbered.append(replace(each, device=gpu[which]))
    return numbered


class Lanes:
    """The lanes of the timeline: the streams of each device in order, then host threads under their names.

    ``ranks`` maps a process to its MPI rank, where the file knows it.
    """

    def __init__(self, database: Database, rows: Sequence[Rows]) -> None:
        self.index = Index[Lane]()
        ranks = _integer_pairs(database, "MPI_RANKS", "globalPid", "rank")
        self.ranks = {process >> PROCESS_SHIFT: rank for process, rank in ranks}
        name_of = dict(_integer_pairs(database, "ThreadNames", "globalTid", "nameId"))
        texts = database.strings(sorted(set(name_of.values())))
        self._thread_names = {thread: texts.get(name, "") for thread, name in name_of.items()}
        self._many_processes = len({process for each in rows for process in np.unique(each.process).tolist()}) > 1
        streams = {place for each in rows for place in _distinct(*_place_of_stream(each))[0] if place[0] != ABSENT}
        self._streams = dict(self._name_streams(streams))
        for place in sorted(streams):
            self.index.code(self._streams[place])

    def of(self, rows: Rows) -> Int32:
        """The lane of each row."""
        places, which = _distinct(*_place_of_stream(rows), rows.thread)
        return self.index.codes(self._lane(*place) for place in places)[which]

    def _name_streams(self, streams: Iterable[_Place]) -> Iterator[tuple[_Place, Lane]]:
        """A lane for each stream. Each process and context numbers its own streams: where two use one number on a
        device, the names of their lanes say whose they are.
        """
        owners: dict[Lane, list[_Place]] = defaultdict(list)
        for device, stream, process, context in sorted(streams):
            lane = Lane(f"stream {stream}", device, self.ranks.get(process, NONE))
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
        rank = self.ranks.get(process, NONE)
        name = "thread" if thread == ABSENT else f"thread {thread & _ID_BITS}"
        if self._thread_names.get(thread):
            name += f" ({self._thread_names[thread]})"
        return Lane(f"{name} of process {process & _ID_BITS}" if self._many_processes else name, rank=rank)


_Place = tuple[int, ...]  # device, stream, process, context


def _place_of_stream(rows: Rows) -> tuple[Int64, Int64, Int64, Int64]:
    return rows.device, rows.stream, rows.process, rows.context


def _integer_pairs(database: Database, table: str, key: str, value: str) -> list[tuple[int, int]]:
    columns = database.integers(table, (key, value))
    pairs = zip(columns[key].tolist(), columns[value].tolist(), strict=True)
    return [pair for pair in pairs if ABSENT not in pair]


def _distinct(*columns: Int64) -> tuple[list[tuple[int, ...]], Int64]:
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
