"""Reads trace.json: native events to a :class:`Trace`. Every rule of the format that a reader must know is here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from cbprof.errors import DataError
from cbprof.formats.chrome.syntax import SCHEMA, ChromeDocument, with_floats
from cbprof.meta import Meta
from cbprof.riders import Riders, unpack, unpack_riders
from cbprof.trace import BATCH_PHASES, CATEGORIES, NONE, Kind, Lane, RequestEvent, Trace, TraceBuilder

_REQUEST_EVENTS = {event.name.lower(): event for event in RequestEvent}
_BATCH_FACTS = ("tokens", "requests", "context", "phase")

# What a malformed event raises: a field is missing, is not of its type, or is out of range.
_MALFORMED = (KeyError, TypeError, ValueError)

# Times and durations beyond 146 years are not believed, so that an end never overflows int64.
_MAX_NS = 1 << 62


def to_trace(document: ChromeDocument, path: Path) -> Trace:
    """The trace that a native document holds; ``path`` is for messages only.

    ``meta`` is the head with the final facts over it, and

    * ``complete``: False if the file was cut; else what the file says; else True;
    * ``otherData``: the object of this name, if there is one;
    * ``health``: ``n_events_recovered`` counts the spans and request moments that were read, ``n_dropped`` the events
      that could not be: a field is missing, not of its type, or out of range. What the importer of a converted trace
      had counted is kept.

    Unknown phases, categories and keys are ignored; unknown args of a span are kept in ``extra``.
    Raises :class:`DataError` on a newer schema, and where the file was cut before its first event.
    """
    meta = _meta(document, path)
    builder = TraceBuilder()
    lanes = _Lanes(builder, rank=NONE if meta.rank is None else meta.rank)
    for event in document.events:
        if isinstance(event, dict) and event.get("ph") == "M":
            with suppress(*_MALFORMED):
                _add_metadata(event, builder, lanes)
    n_recovered = n_dropped = 0
    for event in document.events:
        try:
            n_recovered += _add_event(event, builder, lanes)
        except _MALFORMED:
            n_dropped += 1
    if not document.whole and not n_recovered:
        raise DataError(f"{path}: cut off or damaged before its first span; record the trace again")
    health = {"n_events_recovered": n_recovered, "n_dropped": n_dropped}
    imported = meta.health  # of a trace that was converted from another format
    lost = max(imported.get("n_dropped", 0), 0)
    return builder.build(meta.changed(health={**imported, **health, "n_dropped": n_dropped + lost}))


def _meta(document: ChromeDocument, path: Path) -> Meta:
    head, end, other = (document.fields.get(key) for key in ("cbprof", "cbprof_end", "otherData"))
    said = {**(head if isinstance(head, dict) else {}), **(end if isinstance(end, dict) else {})}
    schema = said.pop("schema", SCHEMA)
    if not isinstance(schema, int | float) or schema >= SCHEMA + 1:
        raise DataError(f"{path}: its schema is {str(schema)[:20]!r}, this version reads {SCHEMA}; update cbprof")
    said |= {"otherData": other} if isinstance(other, dict) else {}
    meta = Meta.parse(said)
    return meta.changed(complete=document.whole and meta.complete)


class _Lanes:
    """Lane ids by (pid, tid). A lane without a name gets one; two lanes that share a name are told apart.

    Lanes have the rank of the file, but where their metadata names another.
    """

    def __init__(self, builder: TraceBuilder, rank: int) -> None:
        self._builder = builder
        self._rank = rank
        self._ids: dict[tuple[int, int | str], int] = {}
        self._taken: set[Lane] = set()

    def find(self, pid: int, tid: int | str) -> int:
        lane_id = self._ids.get((pid, tid))
        return self.add(pid, tid, f"thread {tid}" if pid == 0 else f"stream {tid}") if lane_id is None else lane_id

    def add(self, pid: int, tid: int | str, name: str, rank: int = NONE) -> int:
        if (pid, tid) in self._ids:
            return self._ids[pid, tid]
        if type(pid) is not int or pid < 0 or not isinstance(tid, int | str):
            raise ValueError("not the pid and tid of a lane")
        lane = Lane(name, device=pid - 1, rank=self._rank if rank == NONE else rank)
        while lane in self._taken:
            lane = replace(lane, name=f"{lane.name} ({tid})")
        self._taken.add(lane)
        self._ids[pid, tid] = self._builder.lane(lane)
        return self._ids[pid, tid]


def _add_metadata(event: Mapping[str, Any], builder: TraceBuilder, lanes: _Lanes) -> None:
    args = event["args"]
    if event["name"] == "batch":
        _take_batch(args, _integer(args["step"], bits=32), builder)
    elif event["name"] == "thread_name" and isinstance(args["name"], str):
        lanes.add(event["pid"], event["tid"], args["name"], _integer(args.get("rank"), bits=32))


def _add_event(event: Mapping[str, Any], builder: TraceBuilder, lanes: _Lanes) -> bool:
    """Add a span or a request moment; False if it is neither. Raises where it is one and is malformed."""
    phase, category = event["ph"], event.get("cat", "")
    kind = CATEGORIES.get(category) if phase == "X" else None
    if kind is not None:
        _add_span(event, kind, builder, lanes)
        return True
    if phase == "i" and category == "request" and event["name"] == "tokens":
        builder.tokens(unpack(event["args"]["requests"]), _ns(event["ts"]))
        return True
    if phase == "i" and category == "request" and event["name"] in _REQUEST_EVENTS:
        request = event["args"]["request"]
        if _integer(request, bits=64) != request:
            raise ValueError("not the number of a request")
        builder.request(_REQUEST_EVENTS[event["name"]], request, _ns(event["ts"]))
        return True
    return False


def _add_span(event: Mapping[str, Any], kind: Kind, builder: TraceBuilder, lanes: _Lanes) -> None:
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
    builder.span(lane_id, kind, name, start_ns, dur_ns, step=step, slot=slot, link=link, extra=with_floats(args))


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
