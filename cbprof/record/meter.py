"""Sums of a recording under way, for whoever watches it: how long the device was idle, and what the host did meanwhile.

Host spans come before the device's, whose times are known late. When a span of compute comes, the gap before it is
closed, and every host phase takes what it shares with that gap::

    host      prepare |  launch  |      wait       | update | prepare | launch |
    device                  ------ compute ------                         ----- compute
                                                  ^     the gap           ^
    exposed                                         wait's tail, update, prepare, launch up to there

These are the figures of a dashboard. A report reads the whole trace, and knows more: nested phases count in both here,
and what the host did before a span that is still open is not known yet.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from cbprof.trace import NONE, Kind

RECENT = 256
"""Steps over which the rates of now are taken."""

MOST_SPANS = 4096
"""Host spans that may wait for the device: a bound for memory, far above what a step has."""

MOST_PHASES = 100
"""Names that are told apart; names with a number in them would go on for ever."""
OTHER = "other phases"


@dataclass(slots=True)
class _DeviceTime:
    """``until_ns``: the end of what is known."""

    until_ns: int
    busy_ns: int = 0
    idle_ns: int = 0


class _Mark(NamedTuple):
    """At the start of a step: how long the device had been idle, and how many tokens there were."""

    at_ns: int
    idle_ns: int
    tokens: int


class Meter:
    """Times are nanoseconds of one clock. Fed by the drain's thread; :meth:`figures` may be called on any."""

    def __init__(self) -> None:
        self._host_ns: Counter[str] = Counter()
        self._exposed_ns: Counter[str] = Counter()
        self._devices: dict[int, _DeviceTime] = {}
        self._spans: deque[tuple[int, int, str]] = deque(maxlen=MOST_SPANS)
        self._marks: deque[_Mark] = deque(maxlen=RECENT + 1)
        self._steps = 0
        self._step = NONE
        self._tokens = 0

    def host(self, kind: Kind, name: str, start_ns: int, end_ns: int) -> None:
        """A phase of the host, or its wait, is over."""
        if kind > Kind.CPU_WAIT:
            return
        if name not in self._host_ns and len(self._host_ns) >= MOST_PHASES:
            name = OTHER
        self._host_ns[name] += end_ns - start_ns
        self._spans.append((start_ns, end_ns, name))

    def tokens(self, count: int) -> None:
        self._tokens += count

    def compute(self, device: int, step: int, start_ns: int, end_ns: int) -> None:
        """A device computed. Its spans come in the order of their launches."""
        time = self._devices.setdefault(device, _DeviceTime(start_ns))
        if start_ns > time.until_ns:
            self._expose(time.until_ns, start_ns)
            time.idle_ns += start_ns - time.until_ns
            time.until_ns = start_ns
        if end_ns > time.until_ns:
            time.busy_ns += end_ns - time.until_ns
            time.until_ns = end_ns
        known_ns = min(each.until_ns for each in self._devices.values())
        while self._spans and self._spans[0][1] <= known_ns:
            self._spans.popleft()
        if step != self._step and device == min(self._devices):
            self._step = step
            self._steps += 1
            self._marks.append(_Mark(start_ns, time.idle_ns, self._tokens))

    def _expose(self, start_ns: int, end_ns: int) -> None:
        for begun_ns, ended_ns, name in self._spans:
            shared_ns = min(end_ns, ended_ns) - max(start_ns, begun_ns)
            if shared_ns > 0:
                self._exposed_ns[name] += shared_ns

    def figures(self) -> dict[str, Any]:
        """Plain data, as a status holds it: sums since the recording began, and the rates of the last 256 steps."""
        devices = sorted(self._devices.items())
        return {
            "tokens": self._tokens,
            "steps": self._steps,
            "busy_ns": {str(index): time.busy_ns for index, time in devices},
            "idle_ns": {str(index): time.idle_ns for index, time in devices},
            "host_ns": dict(self._host_ns),
            "exposed_ns": dict(self._exposed_ns),
            **self._rates(),
        }

    def _rates(self) -> dict[str, float]:
        marks = tuple(self._marks)
        if len(marks) < 2 or marks[-1].at_ns <= marks[0].at_ns:
            return {}
        first, last = marks[0], marks[-1]
        passed_ns = last.at_ns - first.at_ns
        return {
            "idle": (last.idle_ns - first.idle_ns) / passed_ns,
            "step_ns": passed_ns / (len(marks) - 1),
            "tokens_per_s": (last.tokens - first.tokens) / (passed_ns / 1e9),
        }
