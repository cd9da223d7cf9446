"""One trace of a program that runs in several processes: each writes a file of what it did, and they are laid together.

All of them read one clock, the machine's, so that times need only be counted from one origin. Each file says under
:data:`PROCESS` which process it is of (``pid``, ``role``, ``replica``), where its time 0 lies on that clock
(``origin_ns``), and of which ``run`` it is the how-many-eth ``recording``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cbprof.errors import DataError
from cbprof.files import with_infix
from cbprof.meta import Meta
from cbprof.riders import by_step
from cbprof.trace import BATCH_PHASES, NONE, Kind, RequestEvent, Trace, TraceBuilder

PROCESS = "process"
"""The key of what a file says of its process."""

_MOST_NS = 1 << 62  # of any time in a trace, as in each of its files: so an end never overflows int64
_MOST = (1 << 63) - 1

_PART = re.compile(r"(?P<stem>.*)\.process-[0-9]+(?P<number>\.[0-9]+)?(?P<suffix>\.json(\.gz)?)(\.part)?")


def part_of(path: Path, pid: int) -> Path:
    """The file of one process of the recording that is to be ``path``: ``trace.process-123.json``."""
    return with_infix(path, f"process-{pid}")


def numbered(path: Path, number: int) -> Path:
    """``trace.json.gz`` is the first, ``trace.2.json.gz`` the second."""
    return path if number == 1 else with_infix(path, str(number))


class Recording(NamedTuple):
    """The files of the processes of one recording, and what the trace of all of them is called."""

    path: Path
    parts: tuple[Path, ...]


def recordings(files: Iterable[Path]) -> list[Recording]:
    """The recordings that these files are parts of, by their names; other files are left out."""
    found: dict[Path, list[Path]] = {}
    for file in sorted(files):
        if (part := _PART.fullmatch(file.name)) is not None:
            whole = file.with_name(f"{part['stem']}{part['number'] or ''}{part['suffix']}")
            found.setdefault(whole, []).append(file)
    return [Recording(path, tuple(parts)) for path, parts in found.items()]


def recording_in(folder: Path) -> Recording | None:
    """The one recording whose files make up a folder; None where it holds anything else."""
    try:
        files = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
    except OSError:  # whoever opens it will tell
        return None
    found = recordings(files)
    return found[0] if len(found) == 1 and len(found[0].parts) == len(files) else None


def by_replica(traces: Iterable[Trace]) -> dict[int, list[Trace]]:
    """The traces of each of several engines that serve side by side; front ends, which serve all, go with the first."""
    found: dict[int, list[Trace]] = {}
    for trace in traces:
        replica = _of_process(trace).get("replica")
        found.setdefault(replica if isinstance(replica, int) else 0, []).append(trace)
    return found


def merged(traces: Sequence[Trace]) -> Trace:
    """One trace of all that these processes did, with time 0 where the first of them began.

    A lane whose name is taken gets the role or the pid of its process in front. A device whose number is taken gets the
    next free one: each process counts those that it sees from 0. Links and requests are told apart. The facts are those
    of the process that drove a device, with those of the others where it says nothing. Raises :class:`DataError` where
    a file does not say when it began, or its numbers do not fit together with those of the others.
    """
    if len(traces) == 1:
        return traces[0]
    traces = sorted(traces, key=_origin_ns)
    builder = TraceBuilder()
    lanes, devices = _Names(), _Devices()
    links = requests = 0
    for index, trace in enumerate(traces):
        later_ns = _origin_ns(trace) - _origin_ns(traces[0])
        if later_ns + _latest_ns(trace) >= _MOST_NS:
            raise DataError("the processes began further apart than times can say: they are not of one run")
        process = _of_process(trace)
        who = str(process.get("role") or process.get("pid"))
        ids = [
            builder.lane(
                replace(lane, device=devices.free(lane.device, index))
                if lane.on_device
                else replace(lane, name=lanes.free(lane.name, who))
            )
            for lane in trace.lanes
        ]
        next_link = links + int(trace.link.max(initial=NONE)) + 1
        numbers = (trace.requests.request, trace.riders.request)
        next_request = requests + max(int(column.max(initial=NONE)) for column in numbers) + 1
        if max(next_link, next_request) > _MOST:
            raise DataError("the processes count their launches or requests so high that they cannot be told apart")
        _add(builder, trace, ids, later_ns, links, requests)
        links, requests = next_link, next_request
    return builder.build(_facts(traces))


def _add(builder: TraceBuilder, trace: Trace, lanes: list[int], later_ns: int, links: int, requests: int) -> None:
    columns = (trace.lane_id, trace.kind, trace.name_id, trace.start_ns, trace.dur_ns, trace.step, trace.slot)
    rows = zip(*(column.tolist() for column in (*columns, trace.link)), strict=True)
    for row, (lane, kind, name, start_ns, dur_ns, step, slot, link) in enumerate(rows):
        builder.span(
            lanes[lane],
            Kind(kind),
            trace.names[name],
            start_ns + later_ns,
            dur_ns,
            step=step,
            slot=slot,
            link=link if link == NONE else link + links,
            extra=trace.extra.get(row),
        )
    steps, events, riders = trace.steps, trace.requests, by_step(trace.riders)
    batches = zip(*(c.tolist() for c in (steps.step, steps.tokens, steps.requests, steps.context)), strict=True)
    for (step, tokens, size, context), phase in zip(batches, steps.phase.tolist(), strict=True):
        mine = riders.get(step)
        told = None if mine is None else mine.renumbered(requests)
        builder.batch(step, tokens=tokens, requests=size, context=context, phase=BATCH_PHASES[phase], riders=told)
    moments = zip(*(c.tolist() for c in (events.time_ns, events.request, events.event)), strict=True)
    for time_ns, request, event in moments:
        builder.request(RequestEvent(event), request if request == NONE else request + requests, time_ns + later_ns)


def _latest_ns(trace: Trace) -> int:
    """When the last span or request moment begins; 0 if all begin before."""
    return max(int(trace.start_ns.max(initial=0)), int(trace.requests.time_ns.max(initial=0)))


class _Names:
    """Names for the host lanes, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def free(self, name: str, process: str) -> str:
        wanted = name if name not in self._taken else f"{process} {name}"
        number = 2
        while wanted in self._taken:
            wanted, number = f"{process} {name} {number}", number + 1
        self._taken.add(wanted)
        return wanted


class _Devices:
    """Numbers for the devices of all processes, each once."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int, int], int] = {}

    def free(self, device: int, process: int) -> int:
        if (process, device) not in self._taken:
            taken = set(self._taken.values())
            self._taken[process, device] = next(number for number in count(device) if number not in taken)
        return self._taken[process, device]


def _of_process(trace: Trace) -> Mapping[str, Any]:
    said = trace.meta.extra.get(PROCESS)
    return said if isinstance(said, Mapping) else {}


def _origin_ns(trace: Trace) -> int:
    origin_ns = _of_process(trace).get("origin_ns")
    if not isinstance(origin_ns, int):
        raise DataError("a file of one process does not say when it began: it is none of `cbprof record`")
    return origin_ns


def _facts(traces: Sequence[Trace]) -> Meta:
    """The facts of all. Those of the process with most device spans count first, then those of the one with steps."""
    ranked = sorted(traces, key=lambda trace: (-int(trace.on_device.sum()), -len(trace.steps)))
    said: dict[str, Any] = {}
    for trace in reversed(ranked):
        said |= trace.meta.to_json()
    said |= {name: max(known) for name in ("clock_error_ns", "device_error_ns") if (known := _known(traces, name))}
    said |= {
        "base_time_ns": traces[0].meta.base_time_ns,
        "tokens": max((trace.meta.tokens or 0 for trace in traces), default=0) or None,
        "complete": _complete(traces),
        "processes": [dict(_of_process(trace)) for trace in traces],
    }
    del said[PROCESS]
    meta = Meta.parse({key: value for key, value in said.items() if value is not None})
    return replace(meta, health=ranked[0].meta.health)


def _complete(traces: Sequence[Trace]) -> bool:
    """Whether the run came to its end, as the processes say that came to theirs. One that was killed while they shut
    down has written all it did."""
    ended = [trace for trace in traces if _of_process(trace).get("ended") is True]
    return bool(ended) and all(trace.complete for trace in ended)


def _known(traces: Sequence[Trace], name: str) -> list[int]:
    return [value for trace in traces if (value := getattr(trace.meta, name)) is not None]
