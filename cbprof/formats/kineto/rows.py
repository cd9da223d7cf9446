"""Which rows of a Chrome trace stand for a device, where only their names tell: by the process, the thread, the flows.

torch.profiler says in the category of each event what it is. Other tools name the rows instead::

    /device:GPU:0     Stream #118(Compute)    work of a device      XLA, as JAX and TensorFlow write it
                      XLA Modules, XLA Ops    ranges around that work
    /host:CPU         python                  the host
    Trace             GPU Stream 7            work, by category     Proton, of Triton
                      Graph: Stream 7         ranges around the kernels of a CUDA graph
                      CPU Thread 0            the host
    Ascend Hardware   Stream 2                work of a device      Ascend, see ``ascend.py``

What stands on a device's row in a form that is not known is not understood: it is no work of the host, and is told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from cbprof.formats.kineto.ascend import on_their_threads, rows_of_npus
from cbprof.formats.kineto.scalars import Scalar, Where

_XLA_DEVICE = re.compile(r".*/device:[a-z_]+:(\d{1,9})\b.*", re.IGNORECASE)
_XLA_STREAM = re.compile(r"stream\s*#?(\d{1,18})\b.*", re.IGNORECASE)
_XLA_RANGES = re.compile(
    r"(async )?XLA (modules|ops|traceme)|steps|source code|launch stats|(framework|tensorflow) (ops|name scope)",
    re.IGNORECASE,
)
_PROTON_STREAM = re.compile(r"GPU (?:\d+ )?Stream (\d{1,18})")
_PROTON_RANGES = re.compile(r"Graph: (?:.* )?Stream (\d{1,18})")
_OF_A_DEVICE = re.compile(r"(^|[^a-z])(gpu|npu|tpu|xpu|mlu|hpu|device|accelerator|hardware)s?([^a-z]|$)", re.IGNORECASE)
_BEGINS_AS_A_DEVICE = re.compile(r"(gpu|npu|tpu|xpu|mlu|hpu|cuda|hip|stream)s?([^a-z]|$)", re.IGNORECASE)

MOST_NAMED = 5
"""So many rows are named where they are not understood; of more it is said how many."""


class Role(Enum):
    """What the spans of a row are that no category explains."""

    HOST = "host"
    WORK = "work of a device"
    RANGES = "ranges around work of a device"
    UNKNOWN = "not understood"


class Rows(NamedTuple):
    """``roles``: of each row of a file. ``wheres``: the rows, with the device and the stream that their names tell.

    ``names``: what to call them in a sentence. ``lanes``: the rows on whose lanes their spans go.
    """

    roles: Sequence[Role]
    wheres: Sequence[Where]
    names: Sequence[str]
    lanes: Sequence[Where]


def name_rows(
    wheres: Sequence[Where],
    process_names: Mapping[Scalar, str],
    process_labels: Mapping[Scalar, str],
    thread_names: Mapping[tuple[Scalar, Scalar], str],
    launched_on: Iterable[tuple[Scalar, Scalar]],
) -> Rows:
    """The roles of the rows of a file. ``launched_on``: those (pid, tid) where an arrow from a launch ends."""
    processes = [process_names.get(where.pid, "").strip() for where in wheres]
    threads = [thread_names.get((where.pid, where.tid), "").strip() for where in wheres]
    devices = [_XLA_DEVICE.fullmatch(name) for name in processes]
    xla = {where.pid: device[1] for where, device in zip(wheres, devices, strict=True) if device}
    with_streams = {
        where.pid
        for where, thread in zip(wheres, threads, strict=True)
        if where.pid in xla and _XLA_STREAM.fullmatch(thread)
    }
    shared = {number for number, count in Counter(xla[pid] for pid in with_streams).items() if count > 1}
    ends = set(launched_on)
    npus = rows_of_npus(wheres, processes, threads, process_labels)
    roles, placed = [], []
    for place, (where, process, thread) in enumerate(zip(wheres, processes, threads, strict=True)):
        if npu := npus.get(place):
            roles.append(Role.WORK if npu.is_work else Role.RANGES)
            placed.append(where._replace(device=npu.device, stream=npu.stream))
            continue
        role, stream = Role.HOST, None
        if where.pid in with_streams:
            stream = _XLA_STREAM.fullmatch(thread)
            role = Role.WORK if stream else Role.RANGES if _XLA_RANGES.fullmatch(thread) else Role.UNKNOWN
        elif stream := _PROTON_RANGES.fullmatch(thread):
            role = Role.RANGES
        elif (
            (stream := _PROTON_STREAM.fullmatch(thread))
            or where.pid in xla
            or _OF_A_DEVICE.search(process)
            or _BEGINS_AS_A_DEVICE.match(thread)
            or (where.pid, where.tid) in ends
        ):
            role = Role.UNKNOWN
        numbered = role is Role.WORK and xla[where.pid] not in shared
        roles.append(role)
        placed.append(
            where._replace(
                device=int(xla[where.pid]) if numbered else where.device,
                stream=int(stream[1]) if stream and where.stream is None else where.stream,
            )
        )
    names = [
        ": ".join(filter(None, (process or f"process {where.pid}", thread)))
        for where, process, thread in zip(wheres, processes, threads, strict=True)
    ]
    return Rows(roles, placed, names, on_their_threads(placed, processes) if npus else placed)


def in_words(counts: Mapping[str, int]) -> str:
    """The sentence on rows that are not understood: their names, with how many events each has, the most first."""
    rows = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    some = ", ".join(f'"{name}" ({count:,} {"event" if count == 1 else "events"})' for name, count in rows[:MOST_NAMED])
    more = f", and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
    return f"these rows are not understood, and count neither as work of a device nor of the host: {some}{more}"
