"""Writes trace.json while the run goes on, so that a run that is killed leaves a file that can be read.

The file is the head (what is known before the run), one event a line, and ``cbprof_end`` (what is known after it).
It grows as ``NAME.part`` and takes its name when it is complete.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cbprof import __version__
from cbprof.errors import DataError, UsageError
from cbprof.files import open_locked, whole_file
from cbprof.formats.chrome.syntax import SCHEMA, to_json
from cbprof.meta import CHROME, Meta
from cbprof.riders import MOST_PACKED, Riders, by_step, pack, pack_riders
from cbprof.trace import BATCH_PHASES, NONE, BatchPhase, Int64, Kind, Lane, RequestEvent, Trace

_LINES_A_WRITE = 4096
_GZIP_LEVEL = 3  # a tenth of the time of level 9, for files a sixth larger
_THOUSANDTHS = tuple(f".{number:03d}" for number in range(1000))

# What the reader finds out for itself, and what has its own place in the file.
_NOT_AMONG_FACTS = ("schema", "complete", "otherData")


class TraceWriter:
    """A :class:`~cbprof.trace.SpanSink` that is a file. ``.gz`` at the end of the name makes it gzip.

    It is meant to be called from one background thread: calls are not synchronised, and one span costs about a
    microsecond. ``flush`` puts everything so far on disk; a reader finds it there even if the process dies next.

    The facts of a batch go into the args of the ``schedule`` span of its step. ``batch`` may be called before that
    span is written (they ride on it) or after (they ride on the next ``cpu.work`` span of the step). Facts that found
    no span by ``close`` are written as a metadata event named ``batch``, which viewers do not draw. The steps are
    expected to be scheduled in ascending order; otherwise facts may ride on another span of their step.

    Raises :class:`UsageError` if the file cannot be begun, :class:`DataError` if the disk fails later, and again on
    every later write; what was written until then stays in ``part``. ``path`` is only ever replaced by a finished file.
    ``raw``: a file to write to instead, whose name is somebody else's care.
    """

    def __init__(self, path: Path, meta: Meta, raw: BinaryIO | None = None) -> None:
        self.path = path
        self._head = _facts(meta)
        self.part = path.with_name(path.name + ".part")
        self._own = raw is None
        self._raw = self._open() if raw is None else raw
        self._out: BinaryIO | gzip.GzipFile = self._raw
        if path.suffix == ".gz":
            # No time of day in the file: the same spans give the same bytes.
            name = path.name.removesuffix(".gz")
            self._out = gzip.GzipFile(name, "wb", compresslevel=_GZIP_LEVEL, fileobj=self._raw, mtime=0)
        self._disk_error: DataError | None = None
        self._lines: list[str] = []
        self._lanes: dict[Lane, int] = {}
        self._places: list[tuple[int, int]] = []  # the pid and tid of each lane
        self._n_lanes: Counter[int] = Counter()  # by pid
        self._rank = NONE if meta.rank is None else meta.rank
        self._openings: dict[tuple[int, Kind, str], str] = {}
        self._arrows = 0
        self._last_scheduled = NONE
        self._facts: dict[int, str] = {}  # of steps whose schedule span is still to come
        self._packed: tuple[Sequence[int], str] = ((), "")  # the requests of the last tokens, and their text
        self._late_facts: dict[int, str] = {}  # of steps whose schedule span has been written without them
        with self._telling_disk_errors():
            self._out.write(_head(self._head, meta.other_data or {}).encode())

    def lane(self, lane: Lane) -> int:
        if lane in self._lanes:
            return self._lanes[lane]
        pid = lane.device + 1
        self._n_lanes[pid] += 1
        tid = self._n_lanes[pid]
        if pid > 0 and tid == 1:
            self._lines.append(_metadata("process_name", pid, 0, {"name": f"GPU {lane.device}"}))
        args = {"name": lane.name} | ({} if lane.rank in (NONE, self._rank) else {"rank": lane.rank})
        self._lines.append(_metadata("thread_name", pid, tid, args))
        self._places.append((pid, tid))
        return self._lanes.setdefault(lane, len(self._lanes))

    def span(
        self,
        lane_id: int,
        kind: Kind,
        name: str,
        start_ns: int,
        dur_ns: int,
        *,
        step: int = NONE,
        slot: int = NONE,
        link: int = NONE,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if dur_ns < 0:
            raise ValueError(f"span {name!r} at {start_ns} ns has a negative duration: {dur_ns} ns")
        opening = self._openings.get((lane_id, kind, name)) or self._add_opening(lane_id, kind, name)
        args = f',"step":{step}' if step != NONE else ""
        if slot != NONE:
            args += f',"slot":{slot}'
        if link != NONE:
            args += f',"link":{link}'
        if kind == Kind.CPU_WORK:
            args += self._take_facts(name, step)
        if extra:
            args = _with_extra(args, extra)
        end = f',"args":{{{args[1:]}}}}}' if args else "}"
        self._lines.append(f'{opening}{_us(start_ns)},"dur":{_us(dur_ns)}{end}')
        if len(self._lines) >= _LINES_A_WRITE:
            self._write_lines()

    def arrow(self, from_lane: int, from_ns: int, to_lane: int, to_ns: int) -> None:
        """Lead the eye from the span that begins at one place to the span that begins at another. Readers ignore it."""
        self._arrows += 1
        for phase, lane_id, time_ns in (('"s"', from_lane, from_ns), ('"f","bp":"e"', to_lane, to_ns)):
            pid, tid = self._places[lane_id]
            self._lines.append(
                f',\n{{"ph":{phase},"id":{self._arrows},"name":"launch","cat":"launch",'
                f'"pid":{pid},"tid":{tid},"ts":{_us(time_ns)}}}'
            )

    def batch(
        self, step: int, *, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        facts = self._facts if step > self._last_scheduled else self._late_facts
        packed = f",{to_json(pack_riders(riders))[1:-1]}" if riders is not None else ""
        facts[step] = f',"tokens":{tokens},"requests":{requests},"context":{context},"phase":"{phase}"{packed}'

    def request(self, event: RequestEvent, request: int, time_ns: int) -> None:
        self._lines.append(
            f',\n{{"ph":"i","name":"{event.name.lower()}","cat":"request","s":"p","pid":0,"tid":0,'
            f'"ts":{_us(time_ns)},"args":{{"request":{request}}}}}'
        )

    def tokens(self, requests: Sequence[int], time_ns: int) -> None:
        if len(requests) > MOST_PACKED:
            self.tokens(requests[:MOST_PACKED], time_ns)
            self.tokens(requests[MOST_PACKED:], time_ns)
            return
        if requests != self._packed[0]:  # in decode, those of one step are those of the next
            self._packed = (requests, pack(requests))
        self._lines.append(
            f',\n{{"ph":"i","name":"tokens","cat":"request","s":"p","pid":0,"tid":0,'
            f'"ts":{_us(time_ns)},"args":{{"requests":"{self._packed[1]}"}}}}'
        )

    def flush(self) -> None:
        """Put everything so far on disk, such that a reader finds it there."""
        self._write_lines()
        with self._telling_disk_errors():
            self._out.flush()  # of gzip too: it ends the block at a byte (Z_SYNC_FLUSH)
            self._raw.flush()

    def close(self, meta: Meta) -> Path:
        """Write the facts that have been learned since the file was begun, give it its name, return that."""
        for step, facts in (*self._facts.items(), *self._late_facts.items()):
            self._lines.append(f',\n{{"ph":"M","name":"batch","pid":0,"tid":0,"args":{{"step":{step}{facts}}}}}')
        learned = {key: value for key, value in _facts(meta).items() if self._head.get(key) != value}
        self._lines.append(f'\n],\n"cbprof_end": {to_json({"complete": meta.complete} | learned)}}}\n')
        self._write_lines()
        with self._telling_disk_errors():
            self._out.close()
            if self._own:
                self._raw.close()
                os.replace(self.part, self.path)
        return self.path

    def abandon(self) -> None:
        """Remove what was written. Does nothing after ``close``."""
        self._release()
        with suppress(OSError):
            self.part.unlink()

    def disown(self) -> None:
        """In a process forked off: what it may still write, or the interpreter on its way out, goes nowhere."""
        if not self._raw.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._raw.fileno())
            os.close(nowhere)

    def _open(self) -> BinaryIO:
        try:
            if self.path.exists() and not self.path.is_file():
                raise UsageError(f"{self.path}: is not a file, so no trace can be written there; write elsewhere (-o)")
            return open_locked(self.part)
        except (FileNotFoundError, NotADirectoryError):
            folder = self.path.parent
            raise UsageError(f"{self.path}: there is no folder {folder}; create it, or write elsewhere (-o)") from None
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}; write elsewhere (-o)") from error

    def _write_lines(self) -> None:
        data = "".join(self._lines).encode()
        self._lines.clear()
        with self._telling_disk_errors():
            self._out.write(data)

    @contextmanager
    def _telling_disk_errors(self) -> Iterator[None]:
        if self._disk_error:
            raise self._disk_error
        try:
            yield
        except OSError as error:
            self._release()
            self._disk_error = DataError(f"{self.path}: cannot be written: {error.strerror}; write elsewhere (-o)")
            raise self._disk_error from error

    def _release(self) -> None:
        with suppress(OSError):
            self._out.close()
        with suppress(OSError):
            self._raw.close()

    def _add_opening(self, lane_id: int, kind: Kind, name: str) -> str:
        """The constant beginning of such spans, up to the value of ``ts``."""
        pid, tid = self._places[lane_id]
        facts = f'"name":{to_json(name)},"cat":"{kind.category}","pid":{pid},"tid":{tid}'
        opening = self._openings[lane_id, kind, name] = f',\n{{"ph":"X",{facts},"ts":'
        return opening

    def _take_facts(self, name: str, step: int) -> str:
        if name == "schedule":
            self._last_scheduled = max(self._last_scheduled, step)
            return self._facts.pop(step, "")
        return self._late_facts.pop(step, "") if self._late_facts else ""


def save(trace: Trace, path: Path, *, launch_of: Int64 | None = None, of: Iterable[Path] = ()) -> Path:
    """Write a whole trace, or nothing. Raises :class:`CbprofError` if that is not possible.

    ``of``: the files that it was read from, see :func:`cbprof.files.whole_file`. ``launch_of``: for each span the index
    of the one that launched it, or -1; viewers then draw an arrow between them.
    """
    with whole_file(path, "the trace", of=of) as file:
        writer = TraceWriter(path, trace.meta, file)
        _write_trace(trace, writer)
        if launch_of is not None:
            _write_arrows(trace, writer, launch_of)
        writer.close(trace.meta)
    return path


def _write_trace(trace: Trace, writer: TraceWriter) -> None:
    lanes = [writer.lane(lane) for lane in trace.lanes]
    steps = trace.steps
    batches = _rows(steps.step, steps.tokens, steps.requests, steps.context, steps.phase)
    riders = by_step(trace.riders)
    for step, tokens, n_requests, context, phase in batches:
        facts = {"tokens": tokens, "requests": n_requests, "context": context}
        writer.batch(step, **facts, phase=BATCH_PHASES[phase], riders=riders.get(step))
    what = (trace.lane_id, trace.kind, trace.name_id)
    spans = _rows(*what, trace.start_ns, trace.dur_ns, trace.step, trace.slot, trace.link)
    for index, (lane, kind, name, start_ns, dur_ns, step, slot, link) in enumerate(spans):
        place = {"step": step, "slot": slot, "link": link}
        writer.span(lanes[lane], Kind(kind), trace.names[name], start_ns, dur_ns, **place, extra=trace.extra.get(index))
    requests = trace.requests
    moments = _rows(requests.time_ns, requests.request, requests.event)
    for (time_ns, is_token), same in groupby(moments, lambda row: (row[0], row[2] == RequestEvent.TOKEN)):
        together = [(request, RequestEvent(event)) for _, request, event in same]
        if is_token and min(together)[0] >= 0:
            writer.tokens(tuple(request for request, _ in together), time_ns)
        else:
            for request, event in together:
                writer.request(event, request, time_ns)


def _write_arrows(trace: Trace, writer: TraceWriter, launch_of: Int64) -> None:
    lanes = np.array([writer.lane(lane) for lane in trace.lanes], dtype=np.int64)[trace.lane_id]
    launched = np.flatnonzero(launch_of != NONE)
    launch = launch_of[launched]
    for arrow in _rows(lanes[launch], trace.start_ns[launch], lanes[launched], trace.start_ns[launched]):
        writer.arrow(*arrow)


def _rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[int, ...]]:
    """The rows of integer columns, as Python integers."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _facts(meta: Meta) -> dict[str, Any]:
    facts = {key: value for key, value in meta.to_json().items() if key not in _NOT_AMONG_FACTS}
    if meta.format == CHROME:
        facts.pop("health", None)  # of another trace.json; what an importer found is to be kept
    return facts


def _head(facts: Mapping[str, Any], other_data: Mapping[str, Any]) -> str:
    """The file up to its first event, which names the host. The tool that took the trace stays its producer."""
    other = {"producer": f"cbprof {__version__}"} | dict(other_data)
    host = _metadata("process_name", 0, 0, {"name": "host"}).removeprefix(",\n")
    return (
        f'{{"displayTimeUnit": "ms",\n"otherData": {to_json(other)},\n'
        f'"cbprof": {to_json({"schema": SCHEMA, **facts, "complete": False})},\n"traceEvents": [\n{host}'
    )


def _metadata(name: str, pid: int, tid: int, args: Mapping[str, Any]) -> str:
    return f',\n{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"args":{to_json(args)}}}'


def _with_extra(args: str, extra: Mapping[str, Any]) -> str:
    """The args with whatever else is known. A key that is there already is not repeated."""
    fresh = {key: value for key, value in extra.items() if f',"{key}":' not in args}
    return f"{args},{to_json(fresh)[1:-1]}" if fresh else args


def _us(ns: int) -> str:
    """Integer nanoseconds as microseconds with exactly three decimals."""
    return f"{ns // 1000}{_THOUSANDTHS[ns % 1000]}" if ns >= 0 else f"-{_us(-ns)}"
