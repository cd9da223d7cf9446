"""Reads the traces of torch.profiler (Kineto): CUDA and ROCm, current and legacy, whole, cut or damaged.

Other tools' Chrome traces are read by the same rules; without events of a device they have only a host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.errors import DataError
from cbprof.formats.bytes.stream import ByteStream, Progress
from cbprof.formats.columns import Block, Index, assemble
from cbprof.formats.kineto.columns import NOT_A_TIME, Collector, Spans
from cbprof.formats.kineto.event_stream import EventStream
from cbprof.formats.kineto.events import TEXT_TIMES
from cbprof.formats.kineto.flows import links_of_arrows
from cbprof.formats.kineto.helper import Helper, HelperError, is_worth_it
from cbprof.formats.kineto.lanes import Lanes, tags_of
from cbprof.formats.kineto.rows import Role, Rows, in_words, name_rows
from cbprof.formats.kineto.rules import (
    SPAN_OF_ALL,
    category,
    copies_to_pageable,
    device_of,
    host_of,
    is_call,
    is_known,
    is_of_kineto,
    kind_of,
    kind_of_work,
)
from cbprof.formats.kineto.scalars import What, Where
from cbprof.formats.sampled import doubted, says_sampled
from cbprof.meta import CHROME, Meta
from cbprof.trace import CATEGORIES, NONE, Int8, Int32, Int64, Kind, Trace

HELPED_FROM = 96 << 20
"""Bytes that are still to come for which a helper is called: it takes as long to start as to decode half of them."""

MAX_SPANS = 100_000_000
"""Of a file that one process reads: they take 9 GB. With a helper twice as many pass."""

CHECKED_EVERY = 64  # batches

Mask = npt.NDArray[np.bool_]


class NativeTraceError(Exception):
    """The file is one of cbprof's own, and is to be read as such."""


def load(path: Path, *, alone: bool = False, progress: Progress | None = None) -> Trace:
    """The trace that a file of Chrome trace JSON holds, gzip or not.

    Its ``format`` is ``kineto``, or ``chrome`` where nothing is of torch.profiler.

    ``alone``: keep to this process, however large the file is. ``progress``: told how far the file is read.
    Raises :class:`DataError`, in one line, where the file is no trace, :class:`NativeTraceError` where it is our own.
    """
    try:
        events, collector = _collect(path, helped=not alone and is_worth_it(), progress=progress)
    except HelperError:
        events, collector = _collect(path, helped=False, progress=progress)
    if not collector.has_phases and (collector.n_events or not events.whole or "schemaVersion" not in events.fields):
        seen = events.whole or collector.n_events
        what = "none of its events has a phase (`ph`)" if seen else "cut off before its first whole event"
        raise DataError(f"{path}: not a trace: {what}; record one with a profiler, or with `cbprof run -o trace.json`")
    trace = _trace(collector.spans(), collector, events)
    return doubted(trace) if says_sampled("", events.fields) else trace


def _collect(path: Path, *, helped: bool, progress: Progress | None) -> tuple[EventStream, Collector]:
    """Read the file; with ``helped``, let a second process decode half of a large one."""
    helper, collector = None, Collector()
    with ExitStack() as stack:
        stream = stack.enter_context(ByteStream(path))
        events = EventStream(stream)
        for batch in events.batches():
            collector.add(batch)
            if progress is not None:
                progress(stream.consumed, stream.size)
            events.record = TEXT_TIMES if collector.needs_text else events.record
            if batch.place % CHECKED_EVERY == 0 and collector.n_spans > MAX_SPANS:
                raise DataError(f"{path}: holds more than {MAX_SPANS:,} spans, too many for memory; record fewer steps")
            if helped and helper is None and stream.n_ahead > HELPED_FROM:
                helper = events.helper = stack.enter_context(Helper(stream.fileno()))
        if helper is not None:
            collector.absorb(helper.finish())
    return events, collector


def _trace(spans: Spans, collector: Collector, events: EventStream) -> Trace:
    whats = [What(*key) for key in collector.whats]
    if any(what.cat in CATEGORIES for what in whats):
        raise NativeTraceError
    launched_on = {(arrow.pid, arrow.tid) for arrow in collector.arrows if not arrow.begins}
    written = [Where(*key) for key in collector.wheres]
    rows_of_file = name_rows(
        written, collector.process_names, collector.process_labels, collector.thread_names, launched_on
    )
    wheres = rows_of_file.wheres
    kind, not_understood = _kinds(spans, whats, rows_of_file)
    timed = (spans.start_ns != NOT_A_TIME) & (spans.dur_ns != NOT_A_TIME) & (spans.dur_ns >= 0)
    on_device = kind >= Kind.GPU_COMPUTE
    collected = ~on_device | (spans.start_ns != 0) | (spans.dur_ns != 0)  # CUPTI says 0 and 0 where it has no times
    kept = timed & collected
    n_dropped = len(spans) - int(kept.sum()) + collector.n_unmatched

    launches = np.array([is_call(what) for what in whats], dtype=bool)
    of_all = np.array([category(what) == SPAN_OF_ALL for what in whats], dtype=bool)
    to_pageable = np.array([copies_to_pageable(what) for what in whats], dtype=bool)
    extent_ns = _extent(spans, kept & ~_of(of_all, spans.what))
    health = {
        "n_events": collector.n_events,
        "n_events_recovered": collector.n_events - n_dropped,
        "n_dropped": n_dropped,
        "n_damaged": events.n_damaged,
    }
    rows = np.flatnonzero(kept & (kind != NONE))
    calls = _of(launches, spans.what[rows])
    if Role.WORK in rows_of_file.roles:  # XLA's hosts are traced in calls of no category
        calls |= ~on_device[rows] & (spans.link[rows] != NONE)
    device_rows = _rows_in(spans.where[rows][on_device[rows]])
    ran = {device_of(wheres[row]) for row in device_rows}
    meta = _meta(events.fields, ran, is_kineto=any(is_of_kineto(what) for what in whats))
    tags = tags_of(wheres, device_rows, _rows_in(spans.where[rows][calls]))
    names, lanes = (
        Index[str](),
        Lanes(rows_of_file.lanes, tags, collector.thread_names, NONE if meta.rank is None else meta.rank),
    )
    name_id = names.codes(what.shown for what in whats)
    link = np.where(on_device[rows] | calls, spans.link[rows], NONE)
    link, health["n_ambiguous_launches"] = _within_processes(link, calls, spans.where[rows], wheres, tags)
    if collector.arrows and (link[on_device[rows]] == NONE).all():
        timed_rows = np.flatnonzero(kept)
        told = np.full(len(spans), NONE, dtype=np.int64)
        told[timed_rows] = links_of_arrows(
            spans.start_ns[timed_rows],
            spans.dur_ns[timed_rows],
            spans.where[timed_rows],
            on_device[timed_rows],
            rows_of_file,
            collector.arrows,
        )
        link = told[rows]
    block = Block(
        start_ns=spans.start_ns[rows],
        dur_ns=spans.dur_ns[rows],
        link=link,
        name_id=name_id[spans.what[rows]],
        lane_id=lanes.of(spans.where[rows], on_device[rows]),
        kind=_with_blocking_copies(kind[rows], link, _of(to_pageable, spans.what[rows])),
    )
    warnings = []
    if unclear := health["n_ambiguous_launches"]:
        warnings.append(
            f"{unclear} launch ids are used by more than one process: which of them launched what is unknown; "
            "read the files of the processes one by one"
        )
    health["n_not_understood"] = sum(not_understood.values())
    if not_understood:
        warnings.append(in_words(not_understood))
    health["n_unsorted"] = _n_unsorted(block)
    del spans, on_device, timed, collected, kept  # a large file needs the room
    meta = replace(
        meta,
        complete=events.whole,
        reliable=not not_understood,
        warnings=tuple(warnings),
        health=health,
        extent_ns=extent_ns,
        device_names=lanes.device_names,
    )
    return assemble([block], names.things(), lanes.things(), meta)


def _kinds(spans: Spans, whats: Sequence[What], rows: Rows) -> tuple[Int8, Counter[str]]:
    """The kind of each span, -1 for none, and how many are not understood, by the name of their row.

    Where a span stands matters only if its category does not say what it is.
    """
    plainly = np.array([_code(kind_of(what, None)) for what in whats], dtype=np.int8)
    kind = plainly[spans.what] if len(spans) else np.empty(0, dtype=np.int8)
    bare = np.flatnonzero(_of(np.array([not is_known(what) for what in whats], dtype=bool), spans.what))
    size = len(rows.wheres)
    pairs, pair_of, counts = np.unique(
        spans.what[bare] * np.int64(size) + spans.where[bare], return_inverse=True, return_counts=True
    )
    meant, not_understood = [], Counter[str]()
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        what, at = whats[pair // size], pair % size
        role = rows.roles[at]
        if role is Role.HOST:
            meant.append(_code(kind_of(what, rows.wheres[at])))
        elif role is Role.WORK:
            meant.append(_code(kind_of_work(what.name)))
        else:
            meant.append(NONE)
        if role is Role.UNKNOWN:
            not_understood[rows.names[at]] += count
    kind[bare] = np.array(meant, dtype=np.int8)[pair_of] if meant else kind[bare]
    return kind, not_understood


def _rows_in(where: Int32) -> list[int]:
    rows: list[int] = np.unique(where).tolist()
    return rows


def _within_processes(
    link: Int64, calls: Mask, where: Int32, wheres: Sequence[Where], tags: Sequence[str]
) -> tuple[Int64, int]:
    """Links that mean one launch each, in a file that was merged of several; and how many ids could not be told apart.

    Every process numbers its launches from 1. Where rows carry tags, an id counts with its tag. Where they do not, and
    several processes launched something under one id, it is not known whose a device event is: it gets no link.
    """
    kinds = sorted(set(tags))
    if len(kinds) > 1:
        tag = np.array([kinds.index(each) for each in tags], dtype=np.int64)[where]
        linked = np.flatnonzero(link != NONE)
        link = link.copy()
        link[linked] = np.unique(np.stack((tag[linked], link[linked])), axis=1, return_inverse=True)[1].ravel()
    processes = Index[object]()
    process = processes.codes(host_of(each)[0] for each in wheres)
    if len(np.unique(process[_rows_in(where[calls])])) < 2:
        return link, 0
    launched = np.flatnonzero(calls & (link != NONE))
    pairs = np.unique(np.stack((link[launched], process[where[launched]])), axis=1)[0]
    ids, n_processes = np.unique(pairs, return_counts=True)
    unclear = ids[n_processes > 1]
    return np.where(np.isin(link, unclear), NONE, link), len(unclear)


def _code(kind: Kind | None) -> int:
    return NONE if kind is None else int(kind)


def _with_blocking_copies(kind: Int8, link: Int64, to_pageable: Mask) -> Int8:
    """The same kinds, but a call that copies to pageable memory waits: it returns when the copy is done."""
    copies = link[to_pageable & (kind >= Kind.GPU_COMPUTE) & (link != NONE)]
    blocks = (kind == Kind.CPU_WORK) & (link != NONE) & np.isin(link, copies)
    return np.where(blocks, np.int8(Kind.CPU_WAIT), kind)


def _n_unsorted(block: Block) -> int:
    """Spans on a device that start before the one that stands before them in the file, on the same stream."""
    rows = np.flatnonzero(block.kind >= Kind.GPU_COMPUTE)
    rows = rows[np.argsort(block.lane_id[rows], kind="stable")]
    same_lane = block.lane_id[rows][1:] == block.lane_id[rows][:-1]
    return int((same_lane & (block.start_ns[rows][1:] < block.start_ns[rows][:-1])).sum())


def _of(mask: Mask, number: Int32) -> Mask:
    """A mask of numbered things, taken to the spans that carry the numbers."""
    return mask[number] if len(mask) else np.zeros(len(number), dtype=bool)


def _extent(spans: Spans, counted: Mask) -> tuple[int, int] | None:
    """The first start and the last end of any event, whether it counts as work or not."""
    if not counted.any():
        return None
    start, end = spans.start_ns[counted], (spans.start_ns + spans.dur_ns)[counted]
    return int(start.min()), int(end.max())


def _meta(fields: Mapping[str, Any], ran: set[int | str], *, is_kineto: bool) -> Meta:
    """What the file says about the recording as a whole. ``ran``: the devices that have an event.

    The file lists every GPU of the machine. Those count that ran something, where the list tells which they are.
    """
    distributed = fields.get("distributedInfo")
    if not isinstance(distributed, dict):
        distributed = {}
    properties = fields.get("deviceProperties", fields.get("computeProperties"))
    listed = [each for each in properties if isinstance(each, dict)] if isinstance(properties, list) else []
    used = [each for each in listed if isinstance(each.get("id"), int | str) and each["id"] in ran]
    found = [each.get("name") for each in used or listed]
    models = [name for name in dict.fromkeys(found) if isinstance(name, str) and name]
    numbers = {name: found.count(name) for name in models}
    return Meta.parse(
        {
            "evidence": "cupti",
            "format": "kineto" if is_kineto or "schemaVersion" in fields else CHROME,
            "base_time_ns": _integer(fields.get("baseTimeNanoseconds")),
            "trace_id": fields.get("trace_id"),
            "rank": _integer(distributed.get("rank")),
            "world_size": _integer(distributed.get("world_size")),
            "device": ", ".join(f"{count} x {name}" if count > 1 else name for name, count in numbers.items()) or None,
        }
    )


def _integer(value: Any) -> int | None:
    """A whole number, also where it is written as a string."""
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None
