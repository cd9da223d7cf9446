"""Reads trace.json: native events to a :class:`Trace`. Every rule of the format that a reader must know is here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cbprof.errors import DataError
from cbprof.formats.bytes.stream import ByteStream
from cbprof.formats.chrome.document import Document
from cbprof.formats.chrome.syntax import SCHEMA, with_floats
from cbprof.meta import Meta
from cbprof.numbers import counted
from cbprof.riders import Riders, unpack, unpack_riders
from cbprof.trace import BATCH_PHASES, CATEGORIES, NONE, Kind, Lane, RequestEvent, Trace, TraceBuilder

_REQUEST_EVENTS = {event.name.lower(): event for event in RequestEvent}
_BATCH_FACTS = ("tokens", "requests", "context", "phase")

# What a malformed event raises: a field is missing, is not of its type, or is out of range.
_MALFORMED = (KeyError, TypeError, ValueError)

# Times and durations beyond 146 years are not believed, so that an end never overflows int64.
_MAX_NS = 1 << 62

_MOST_PIDS = 1 << 31  # a device is a pid less one, in 32 bits

MOST_UNKNOWN = 8_000_000
"""Values that are kept of unknown args: about 1 GB. Real traces have a few a span, if any."""


def load(path: Path) -> Trace:
    """The trace that a file of our own holds.

    ``meta`` is the head with the final facts over it, and

    * ``complete``: False if the file was cut; else what the file says; else True;
    * ``otherData``: the object of this name, if there is one;
    * ``health``: ``n_events_recovered`` counts the spans and request moments that were read, ``n_dropped`` the events
      that could not be: a field is missing, not of its type, or out of range. What the importer of a converted trace
      had counted is kept.

    Unknown phases, categories and keys are ignored; unknown args of a span are kept in ``extra``, up to
    ``MOST_UNKNOWN`` of them. Raises :class:`DataError` on a newer schema, and where the file is no trace, is cut before
    its first event, or is nested too deeply.
    """
    try:
        with ByteStream(path) as stream:
            return _trace(Document(stream))
    except RecursionError:
        raise DataError(f"{path}: not a trace: its JSON is nested too deeply") from None


def _trace(document: Document) -> Trace:
    builder, lanes = TraceBuilder(), _Lanes()
    unknown = _Unknown()
    n_recovered = n_dropped = 0
    for event in document.events():
        if isinstance(event, dict) and event.get("ph") == "M":
            with suppress(*_MALFORMED):
                _add_metadata(event, builder, lanes)
            continue
        try:
            n_recovered += _add_event(event, builder, lanes, unknown)
        except _MALFORMED:
            n_dropped += 1
    path = document.path
    meta = _meta(document)
    if not document.whole and not n_recovered:
        raise DataError(f"{path}: cut off or damaged before its first span; record the trace again")
    imported = meta.health  # of a trace that was converted from another format
    lost = max(imported.get("n_dropped", 0), 0)
    health = {**imported, "n_events_recovered": n_recovered, "n_dropped": n_dropped + lost}
    warnings = (*meta.warnings, *unknown.warnings())
    return lanes.settled(builder.build(meta.changed(health=health, warnings=warnings)), meta.rank)


def _meta(document: Document) -> Meta:
    head, end, other = (document.fields.get(key) for key in ("cbprof", "cbprof_end", "otherData"))
    said = {**(head if isinstance(head, dict) else {}), **(end if isinstance(end, dict) else {})}
    schema = said.pop("schema", SCHEMA)
    if not isinstance(schema, int | float) or schema >= SCHEMA + 1:
        raise DataError(
            f"{document.path}: its schema is {str(schema)[:20]!r}, this version reads {SCHEMA}; update cbprof"
        )
    said |= {"otherData": other} if isinstance(other, dict) else {}
    meta = Meta.parse(said)
    return meta.changed(complete=document.whole and meta.complete)


class _Lanes:
    """Lane ids by (pid, tid), in the order in which they are met; what they are is known at the end of the file.

    A lane without a name gets one; two lanes that share a name are told apart. Lanes have the rank of the file, but
    where their metadata names another.
    """

    def __init__(self) -> None:
        self._ids: dict[_Place, int] = {}
        self._named: dict[_Place, tuple[str, int]] = {}  # and the rank

    def find(self, pid: object, tid: object) -> int:
        return self._ids.setdefault(_place(pid, tid), len(self._ids))

    def name(self, pid: object, tid: object, name: str, rank: int) -> None:
        self._named.setdefault(_place(pid, tid), (name, rank))

    def settled(self, trace: Trace, rank: int | None) -> Trace:
        """The trace whose ``lane_id`` are ids of :meth:`find`, with its lanes: those with a name first."""
        order = dict.fromkeys((*self._named, *self._ids))
        number = {place: each for each, place in enumerate(order)}
        lane_of = np.array([number[place] for place in self._ids], dtype=np.int32)
        lane_id = lane_of[trace.lane_id] if len(trace) else trace.lane_id
        return replace(trace, lanes=tuple(self._lanes(order, NONE if rank is None else rank)), lane_id=lane_id)

    def _lanes(self, places: Iterable[_Place], rank_of_file: int) -> Iterator[Lane]:
        taken: set[Lane] = set()
        for pid, tid in places:
            name, rank = self._named.get((pid, tid), (f"thread {tid}" if pid == 0 else f"stream {tid}", NONE))
            lane = Lane(name, device=pid - 1, rank=rank_of_file if rank == NONE else rank)
            while lane in taken:
                lane = replace(lane, name=f"{lane.name} ({tid})")
            taken.add(lane)
            yield lane


_Place = tuple[int, int | str]


def _place(pid: object, tid: object) -> _Place:
    """The pid and tid of a lane. Raises ValueError where they are none."""
    if type(pid) is not int or not 0 <= pid < _MOST_PIDS or not isinstance(tid, int | str):
        raise ValueError("not the pid and tid of a lane")
    return pid, tid


class _Unknown:
    """What is kept of args that are no facts of ours. It takes more room than the text of the file did."""

    def __init__(self) -> None:
        self._room = MOST_UNKNOWN
        self._n_lost = 0

    def kept(self, args: dict[str, Any]) -> dict[str, Any]:
        self._room -= _size(args)
        if self._room >= 0:
            return args
        self._n_lost += 1
        return {}

    def warnings(self) -> list[str]:
        spans = counted(self._n_lost, "span")
        left_out = f"args that only viewers show are left out of {spans}: there are too many for memory"
        return [left_out] if self._n_lost else []


def _size(value: Any) -> int:
    """How many values stand in a value, itself among them."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _add_metadata(event: Mapping[str, Any], builder: TraceBuilder, lanes: _Lanes) -> None:
    args = event["args"]
    if event["name"] == "batch":
        _take_batch(args, _integer(args["step"], bits=32), builder)
    elif event["name"] == "thread_name" and isinstance(args["name"], str):
        lanes.name(event["pid"], event["tid"], _whole(args["name"]), _integer(args.get("rank"), bits=32))


def _add_event(event: Mapping[str, Any], builder: TraceBuilder, lanes: _Lanes, unknown: _Unknown) -> int:
    """Add a span or request moments, and return how many; 0 if it is neither. Raises where they are malformed."""
    phase, category = event["ph"], event.get("cat", "")
    kind = CATEGORIES.get(category) if phase == "X" else None
    if kind is not None:
        _add_span(event, kind, builder, lanes, unknown)
        return 1
    if phase == "i" and category == "request" and event["name"] == "tokens":
        together = unpack(event["args"]["requests"])
        builder.tokens(together, _ns(event["ts"]))
        return len(together)
    if phase == "i" and category == "request" and event["name"] in _REQUEST_EVENTS:
        request = event["args"]["request"]
        if _integer(request, bits=64) != request:
            raise ValueError("not the number of a request")
        builder.request(_REQUEST_EVENTS[event["name"]], request, _ns(event["ts"]))
        return 1
    return 0


def _add_span(event: Mapping[str, Any], kind: Kind, builder: TraceBuilder, lanes: _Lanes, unknown: _Unknown) -> None:
    name, start_ns, dur_ns = event["name"], _ns(event["ts"]), _ns(event["dur"])
    if not isinstance(name, str) or dur_ns < 0:
        raise ValueError("not a span")
    lane_id = lanes.find(event["pid"], event["tid"])
    args = event.get("args")
    if not isinstance(args, dict):
        args = {}
    step, slot, link = _take(args, "step", 32), _take(args, "slot", 8), _take(args, "link", 64)
    if kind == Kind.CPU_WORK and len(args) >= len(_BATCH_FACTS):
        _take_batch(args, step, builder)
    extra = unknown.kept(with_floats(args)) if args else None
    builder.span(lane_id, kind, _whole(name), start_ns, dur_ns, step=step, slot=slot, link=link, extra=extra)


def _whole(name: str) -> str:
    """The same with U+FFFD for half a surrogate pair, which JSON can hold, and UTF-8, as of a table, cannot."""
    return name if name.isascii() else name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _take(args: dict[str, Any], key: str, bits: int) -> int:
    """Move an integer out of the args. What is not one, or does not fit its column, stays there; -1 is returned."""
    if key not in args:
        return NONE
    value = _integer(args[key], bits)
    if value == args[key]:
        del args[key]
    return value


def _take_batch(args: dict[str, Any], step: int, builder: TraceBuilder) -> None:
    """Move the facts of a batch out of the args, if all four are there and make sense."""
    *counts, phase = (args.get(fact) for fact in _BATCH_FACTS)
    if step == NONE or phase not in BATCH_PHASES or any(_integer(count, bits=64) != count for count in counts):
        return
    riders = _take_riders(args)
    builder.batch(step, **{fact: args.pop(fact) for fact in _BATCH_FACTS}, riders=riders)


def _take_riders(args: dict[str, Any]) -> Riders | None:
    """Move the requests of a batch out of the args; None, and they stay, where they are not as many as it says."""
    if "decodes" not in args:
        return None
    with suppress(ValueError):
        riders = unpack_riders(args["decodes"], args.get("prefills", ()))
        if riders.size == args["requests"]:
            del args["decodes"]
            args.pop("prefills", None)
            return riders
    return None


def _integer(value: object, bits: int) -> int:
    """The value if it is an integer of so many bits, else -1."""
    if not isinstance(value, int) or isinstance(value, bool):
        return NONE
    return value if -1 << bits - 1 <= value < 1 << bits - 1 else NONE


def _ns(microseconds: Any) -> int:
    """A time of the file in integer nanoseconds, exact for three decimals. Raises ValueError if it is not a time."""
    if type(microseconds) not in (float, int, Decimal) or not -_MAX_NS < microseconds * 1000 < _MAX_NS:
        raise ValueError("not a time")
    ns: int = round(microseconds * 1000)
    return ns
