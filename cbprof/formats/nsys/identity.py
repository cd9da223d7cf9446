"""Which GPU is which in an Nsight Systems export, and who its threads are.

Device numbers mean something only within one process: where processes number the GPUs differently, each GPU goes by its
number in ``TARGET_INFO_CUDA_DEVICE``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cbprof.formats.records.database import Database
from cbprof.formats.records.identity import PROCESS_SHIFT, distinct
from cbprof.formats.records.rows import ABSENT, Findings, Rows, is_device
from cbprof.numbers import counted
from cbprof.trace import NONE

_ID_BITS = (1 << PROCESS_SHIFT) - 1
_MOST_RANKS = 1 << 31
_ON_HOST = (1 << 31) - 1  # the device of a graph whose first node runs on the host (CUpti_ActivityGraphTrace2)


def place_graphs(rows: Sequence[Rows], found: Findings) -> list[Rows]:
    """Graphs that start on the host go to the device that their stream, or else their process, works on."""
    homes: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for each in rows:
        for process, stream, device in distinct(each.process, each.stream, each.device)[0]:
            if device != _ON_HOST:
                homes[process, stream].add(device)
                homes[process,].add(device)
    placed = []
    for each in rows:
        places, which = distinct(each.process, each.stream, each.device)
        home = np.array([_home(homes, *place) for place in places], dtype=np.int64)[which]
        kept = home != ABSENT
        lost = int(len(kept) - kept.sum())
        if lost:
            found.count("n_dropped", lost)
            replays = counted(lost, "replay of a CUDA graph does", "replays of CUDA graphs do")
            found.doubt(f"{replays} not say on which device: left out")
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
    known = is_device(listed["gpuId"])
    table = zip(*(listed[column][known].tolist() for column in ("pid", "cudaId", "gpuId")), strict=True)
    gpu_of = {(pid, device): gpu for pid, device, gpu in table}
    gpus: dict[int, set[int]] = defaultdict(set)
    users: dict[int, set[int]] = defaultdict(set)
    for each in rows:
        for process, device in distinct(each.process, each.device)[0]:
            gpus[device].add(gpu_of.get((process & _ID_BITS, device), NONE))
            users[device].add(process)
    if all(len(each) == 1 for each in gpus.values()):
        for device in sorted(users):
            if len(users[device]) > 1 and NONE in gpus[device]:
                processes = counted(len(users[device]), "process uses", "processes use")
                found.warnings.append(f"{processes} a device {device}; the file does not say whether it is one GPU")
        return list(rows)
    if any(NONE in each for each in gpus.values()):
        found.doubt("processes number the GPUs differently, and not all of them say how: GPUs may be mixed up")
        return list(rows)
    found.warnings.append("the processes number the GPUs differently: devices go by their numbers on the machine")
    numbered = []
    for each in rows:
        places, which = distinct(each.process, each.device)
        gpu = np.array([gpu_of[process & _ID_BITS, device] for process, device in places], dtype=np.int64)
        numbered.append(replace(each, device=gpu[which]))
    return numbered


def ranks(database: Database) -> dict[int, int]:
    """The MPI rank of each process that has one."""
    pairs = _integer_pairs(database, "MPI_RANKS", "globalPid", "rank")
    return {process >> PROCESS_SHIFT: rank for process, rank in pairs if 0 <= rank < _MOST_RANKS}


def thread_names(database: Database) -> dict[int, str]:
    """The names of threads, by globalTid."""
    name_of = dict(_integer_pairs(database, "ThreadNames", "globalTid", "nameId"))
    texts = database.strings(sorted(set(name_of.values())))
    return {thread: texts.get(name, "") for thread, name in name_of.items()}


def _integer_pairs(database: Database, table: str, key: str, value: str) -> list[tuple[int, int]]:
    columns = database.integers(table, (key, value))
    pairs = zip(columns[key].tolist(), columns[value].tolist(), strict=True)
    return [pair for pair in pairs if ABSENT not in pair]
