"""When a program of several processes has ended: their files, laid together into the trace that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cbprof.engine.placement import Placement
from cbprof.errors import CbprofError
from cbprof.formats import load, save
from cbprof.formats.processes import Recording, by_replica, merged, recordings
from cbprof.record.program.status import Status
from cbprof.trace import Trace


def with_merged_files(processes: Sequence[Status]) -> tuple[Status, ...]:
    """The same with one trace in place of the files of the processes of each recording, those of processes that were
    killed included. What cannot be laid together stays as it is, and a note says why."""
    of_processes = {
        Path(file) for process in processes for file in (*process.files, *process.lost, process.part) if file
    }
    written: list[str] = []
    notes: list[str] = []
    used: set[str] = set()
    for recording in recordings(file for file in of_processes if file.exists()):
        try:
            written += map(str, merge(recording))
        except (CbprofError, ValueError) as error:
            notes.append(f"the files of the processes could not be laid together: {error}")
        else:
            used |= set(map(str, recording.parts))
    if not (written or notes):
        return tuple(processes)
    first, *others = (
        process._replace(
            files=tuple(file for file in process.files if file not in used),
            lost=tuple(part for part in process.lost if part not in used),
            part="" if process.part in used else process.part,
        )
        for process in processes
    )
    first = first._replace(files=(*written, *first.files), notes=(*first.notes, *notes))
    return (first, *others)


def merge(recording: Recording) -> list[Path]:
    """Write the trace of all processes, one for each of several engines side by side, and remove their own files."""
    traces = list(_readable(recording.parts))
    if not traces:
        return []
    replicas = by_replica(traces)
    written = []
    for replica, own in sorted(replicas.items()):
        whole = merged(own)
        path = recording.path
        if len(replicas) > 1:
            placement = Placement(rank=replica, local_rank=replica, world_size=len(replicas))
            path, whole = placement.path(path), _placed(whole, placement)
        written.append(save(whole, path))
    for part in recording.parts:
        with suppress(OSError):
            part.unlink()
    return written


def _readable(parts: Iterable[Path]) -> Iterable[Trace]:
    """A process that was killed right after it had begun its file may have left nothing that can be read."""
    for part in parts:
        with suppress(CbprofError):
            yield load(part)


def _placed(trace: Trace, placement: Placement) -> Trace:
    return replace(trace, meta=trace.meta.changed(**placement.facts))
