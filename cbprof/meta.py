"""What a trace says of itself: how it was measured, what ran and where, and what its reader found.

A file may say anything under any key. :meth:`Meta.parse` is the one place where that becomes typed: a value of the
wrong type counts as not said, and is kept beside the keys that cbprof does not know, so that nothing is lost when the
trace is written again. Everything after it needs no ``isinstance``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

Evidence = Literal["cuda_events", "cupti", "emulated", "predicted", "unknown"]
"""How the activity of the device was measured. ``unknown``: the file does not say, or says a word that is not known."""

CHROME = "chrome"
"""The format of our own files, and of another tool's Chrome trace."""


@dataclass(frozen=True, slots=True)
class ProfiledSteps:
    """The steps that ran under a profiler as well, which slows them down: the first, and the one after the last.

    ``start_ns`` and ``end_ns`` bound them on the axis of the trace; they are None where the window has been cut out.
    ``tokens``: how many it brought. ``file``: the profiler's own trace, beside ours.
    """

    file: str | None = None
    steps: tuple[int, int] | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The form in a file; what is not known is left out."""
        return {key: _plain(value) for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Edge:
    """``waiter`` waited ``count`` times for ``event``, recorded on ``recorded_on`` ``steps_before`` steps earlier.

    ``recorded_on`` and ``steps_before`` are None where the event had never been recorded, so that the wait did
    nothing.
    """

    event: str | None
    recorded_on: str | None
    waiter: str | None
    steps_before: int | None
    count: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """While it was recorded, the thread of host lane ``lane`` was on a core for ``run_ns`` nanoseconds, and for
    ``wait_ns`` ready to run but without a core, as the kernel accounts it."""

    lane: str
    run_ns: int
    wait_ns: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The facts of one trace. None, or an empty value, where it does not say.

    ``mode``: ``sync`` or ``async``, or whatever else the engine calls it. ``workload``, ``config``: of the engine, by
    its own keys. ``rank`` of ``world_size`` processes; ``base_time_ns``: time 0 of the trace since 1970.
    ``tokens`` were generated in the run. ``clock_error_ns`` bounds the error between a time of the host and one of the
    device, ``device_error_ns`` that between two times of one device.
    ``threads``: of the host that recorded, empty where the kernel keeps no account of them.

    ``format``: of the file that was read first. ``complete``: neither the run nor the file was cut short. ``reliable``,
    ``warnings`` (sentences) and ``health`` (counts) are what its reader found; ``extent_ns`` is (first start, last end)
    of any event in it. ``device_names``: by device. ``other_data``: the ``otherData`` of a Chrome trace.
    ``step_frames``: names of the annotations that frame steps; ``steps_from``: what steps were searched by, with the
    share of alike steps, 0 to 1, in ``steps_confidence``.

    ``extra``: what else the file says, and what it says in a type that cbprof does not read. It is kept and written
    again, and not interpreted.
    """

    mode: str | None = None
    engine: str | None = None
    evidence: Evidence
    device: str | None = None
    cuda_graphs: bool | None = None
    model: str | None = None
    dtype: str | None = None
    torch: str | None = None
    transformers: str | None = None
    config: Mapping[str, Any] | None = None
    workload: Mapping[str, Any] | None = None
    rank: int | None = None
    world_size: int | None = None
    base_time_ns: int | None = None
    format: str = CHROME
    complete: bool = True
    reliable: bool = True
    warnings: tuple[str, ...] = ()
    health: Mapping[str, float] = field(default_factory=dict)
    extent_ns: tuple[int, int] | None = None
    device_names: Mapping[int, str] = field(default_factory=dict)
    other_data: Mapping[str, Any] | None = None
    step_frames: tuple[str, ...] = ()
    steps_from: str | None = None
    steps_confidence: float | None = None
    tokens: int | None = None
    clock_error_ns: int | None = None
    device_error_ns: int | None = None
    edges: tuple[Edge, ...] = ()
    threads: tuple[ThreadTime, ...] = ()
    cupti: ProfiledSteps | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> Meta:
        """The facts in their plain form, as a file holds them. Whatever stands there, nothing is raised."""
        known: dict[str, Any] = {"evidence": "unknown"}
        extra: dict[str, Any] = {}
        for key, value in said.items():
            typed = _READ[key](value) if key in _READ else None
            if typed is not None:
                known[_FIELD_OF.get(key, key)] = typed
            if key not in _READ or (value is not None and _plain(typed) != _plain(value)):
                extra[key] = value
        return cls(**known, extra=extra)

    def to_json(self) -> dict[str, Any]:
        """The plain form, which :meth:`parse` takes back. What says nothing is left out, but for ``complete``."""
        said = {
            _KEY_OF.get(name, name): _plain(value)
            for name, nothing in _SAYS_NOTHING.items()
            if (value := getattr(self, name)) != nothing or name == "complete"
        }
        return said | dict(self.extra)

    def changed(self, **known: Any) -> Meta:
        """The same facts but for these fields. What a file had said under their keys in another type is forgotten."""
        stale = {_KEY_OF.get(name, name) for name in known}
        extra = {key: value for key, value in self.extra.items() if key not in stale}
        return replace(self, **{"extra": extra} | known)


def _plain(value: Any) -> Any:
    """A typed value as JSON holds it."""
    if isinstance(value, ProfiledSteps | Edge | ThreadTime):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    return value


# Each of these reads one value of a file, and returns None where it is not of its type.


def _evidence(value: object) -> Evidence | None:
    return _EVIDENCE.get(value) if isinstance(value, str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: object, bits: int = 64) -> int | None:
    """A whole number that a column of so many bits holds."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1
    return value if fits and isinstance(value, int) else None


def _number(value: object) -> float | None:
    return value if isinstance(value, float) and math.isfinite(value) else _whole(value)


def _rank(value: object) -> int | None:
    return _whole(value, bits=32)


def _bound(value: object) -> int | None:
    """An error bound: it is not negative, and what is below a nanosecond does not matter."""
    number = _number(value)
    return None if number is None or number < 0 else _whole(int(number))


def _complete(value: object) -> bool:
    """A word that is neither true nor false does not vouch for a file."""
    return value is True


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _texts(value: object) -> tuple[str, ...] | None:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list | tuple) else None


def _pair(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    first, last = map(_whole, value)
    return None if first is None or last is None else (first, last)


def _counts(value: object) -> Mapping[str, float] | None:
    if not isinstance(value, Mapping):
        return None
    return {str(key): number for key, each in value.items() if (number := _number(each)) is not None}


def _names_by_device(value: object) -> Mapping[int, str] | None:
    if not isinstance(value, Mapping):
        return None
    return {int(device): name for device, name in value.items() if _DEVICE.fullmatch(str(device)) and _text(name)}


def _edges(value: object) -> tuple[Edge, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    return tuple(edge for each in value if (edge := _edge(each)) is not None)


def _edge(value: object) -> Edge | None:
    count = _whole(value.get("count")) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or count is None:
        return None
    event, recorded_on, waiter = (_text(value.get(name)) for name in ("event", "recorded_on", "waiter"))
    return Edge(event, recorded_on, waiter, _whole(value.get("steps_before")), count)


def _threads(value: object) -> tuple[ThreadTime, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    return tuple(time for each in value if (time := _thread_time(each)) is not None)


def _thread_time(value: object) -> ThreadTime | None:
    if not isinstance(value, Mapping):
        return None
    lane, run_ns, wait_ns = _text(value.get("lane")), _bound(value.get("run_ns")), _bound(value.get("wait_ns"))
    return None if lane is None or run_ns is None or wait_ns is None else ThreadTime(lane, run_ns, wait_ns)


def _cupti(value: object) -> ProfiledSteps | None:
    if not isinstance(value, Mapping):
        return None
    return ProfiledSteps(
        file=_text(value.get("file")),
        steps=_pair(value.get("steps")),
        start_ns=_whole(value.get("start_ns")),
        end_ns=_whole(value.get("end_ns")),
        tokens=_whole(value.get("tokens")),
    )


_EVIDENCE: Mapping[str, Evidence] = {each: each for each in get_args(Evidence)}
_DEVICE = re.compile("[0-9]{1,9}")

_READ: Mapping[str, Callable[[object], object]] = MappingProxyType(
    {
        "evidence": _evidence,
        **dict.fromkeys(("mode", "engine", "device", "model", "dtype", "torch", "transformers"), _text),
        **dict.fromkeys(("format", "steps_from"), _text),
        **dict.fromkeys(("cuda_graphs", "reliable"), _flag),
        "complete": _complete,
        **dict.fromkeys(("config", "workload", "otherData"), _mapping),
        **dict.fromkeys(("rank", "world_size"), _rank),
        **dict.fromkeys(("base_time_ns", "tokens"), _whole),
        **dict.fromkeys(("clock_error_ns", "device_error_ns"), _bound),
        **dict.fromkeys(("warnings", "step_frames"), _texts),
        "health": _counts,
        "extent_ns": _pair,
        "device_names": _names_by_device,
        "steps_confidence": _number,
        "edges": _edges,
        "threads": _threads,
        "cupti": _cupti,
    }
)
"""What reads the value of each key of a file."""

_KEY_OF = {"other_data": "otherData"}
_FIELD_OF = {key: name for name, key in _KEY_OF.items()}
NOTHING_SAID = Meta(evidence="unknown")
_SAYS_NOTHING = {each.name: getattr(NOTHING_SAID, each.name) for each in fields(Meta) if each.name != "extra"}
