"""The life of each request, from its arrival to its end, every nanosecond of it in one part.

::

    arrives     the engine looks     its first step    its last compute ends     finish
    | not_arrived | queue              | steps ...        | delivery              |

Between the decision on its first step and the end of its last compute, the part is that of the device: it computes
this request's ``prefill``, or its ``decode`` as if alone, or takes longer for the prefill of others
(``others_prefill``); it is idle before or inside a step that the request rides in (``idle.CAUSE``); or it is the turn
of a step without it (``other_batch``). A request that lost its seat waits (``preempted``) until a step takes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.accounting.phases import nearest_rank
from cbprof.analysis.accounting.window import Window, run_window
from cbprof.analysis.requests.lost import computed_again
from cbprof.analysis.requests.turns import ALONE, Turns, turns
from cbprof.riders import RiderTable
from cbprof.trace import Int64, Kind, RequestEvent, Trace

PARTS = ("not_arrived", "queue", "preempted", "other_batch", "prefill", "decode", "others_prefill", "delivery")
IDLE = "idle."
UNTRACED = "untraced"
"""Time of a request outside of the recorded run."""


class TokenGap(NamedTuple):
    """The time up to a token, since the one before it or, of the first, since the request came; ``parts_ns`` sum to it.

    ``step``: in which it was computed, -1 where that is not known. ``prefill_tokens``: the largest number of tokens
    that others had in prefill in a step whose turn lay in the gap.
    """

    start_ns: int
    end_ns: int
    step: int
    parts_ns: dict[str, int]
    prefill_tokens: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class Life:
    """One request. Times in nanoseconds; None is unknown.

    ``parts_ns`` sum to ``end_to_end_ns``; None where no record says in which steps it rode from its first token on.
    ``recomputed``: tokens computed again after preemptions; ``dropped``: computed after its end.
    """

    request: int
    arrive_ns: int | None
    start_ns: int | None
    end_ns: int | None
    finished: bool
    ttft_ns: int | None
    itl_ns: Int64
    steps: int
    preemptions: int
    recomputed: int
    dropped: int
    parts_ns: dict[str, int] | None
    gaps: tuple[TokenGap, ...]

    @property
    def tokens(self) -> int:
        return len(self.gaps)

    @property
    def end_to_end_ns(self) -> int | None:
        return None if self.start_ns is None or self.end_ns is None else self.end_ns - self.start_ns

    def itl_percentile_ns(self, percent: int) -> int | None:
        """Nearest-rank percentile of the time between two of its tokens."""
        return nearest_rank(self.itl_ns, percent) if len(self.itl_ns) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "request": self.request,
            "arrive_ns": self.arrive_ns,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "end_to_end_ns": self.end_to_end_ns,
            "finished": self.finished,
            "tokens": self.tokens,
            "steps": self.steps,
            "ttft_ns": self.ttft_ns,
            "itl_p50_ns": self.itl_percentile_ns(50),
            "itl_p99_ns": self.itl_percentile_ns(99),
            "itl_max_ns": self.itl_percentile_ns(100),
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed,
            "dropped_tokens": self.dropped,
            "parts_ns": self.parts_ns,
        }


def lives(trace: Trace) -> tuple[Life, ...]:
    """The requests of a trace, those that took longest first."""
    trace = without_profiled_steps(trace)
    window = run_window(trace)
    requests = np.unique(np.concatenate((trace.requests.request, trace.riders.request)))
    if window is None or not len(requests):
        return ()
    device = max(trace.devices, key=lambda device: int(trace.mask(kinds=(Kind.GPU_COMPUTE,), device=device).sum()))
    book = _Book(trace, turns(trace, device, window), window)
    found = (book.life(request) for request in requests.tolist())
    return tuple(sorted(found, key=lambda life: (-(life.end_to_end_ns or 0), life.request)))


class _Stretch(NamedTuple):
    """A stretch of a life; ``part`` None: what the device did tells."""

    start: int
    end: int
    part: str | None


class _Book:
    """What is looked up for each request."""

    def __init__(self, trace: Trace, device: Turns, window: Window) -> None:
        self.turns = device
        self.window = window
        self.moments = _by_request(trace.requests.request)
        self.rides = _by_request(trace.riders.request)
        self.table, self.riders = trace.requests, trace.riders
        self.decisions, self.decided = _decisions(trace)
        self.prefill = _prefill_of_steps(trace.riders)
        self.labels = [f"{IDLE}{cause}" for cause in device.causes]

    def life(self, request: int) -> Life:
        rows = self.moments.get(request, _NONE)
        time, event = self.table.time_ns[rows], self.table.event[rows]
        arrive = _first(time[event == RequestEvent.ARRIVE])
        finish = _first(time[event == RequestEvent.FINISH])
        came = time[(event == RequestEvent.FIRST) | (event == RequestEvent.TOKEN)]
        has_first = bool((event == RequestEvent.FIRST).any())
        mine = self._ridden(self.rides.get(request, _NONE))
        step, start, tokens = self.riders.step[mine].astype(np.int64), self.riders.start[mine], self.riders.tokens[mine]
        repeated = computed_again(np.zeros_like(start), start, tokens)
        again = np.flatnonzero(repeated.preempted)
        sampled = step[self.riders.samples[mine] == 1]
        whole = bool(len(step)) and has_first and int(start[0]) == 0 and len(came) <= len(sampled)
        begin = arrive if arrive is not None else int(self.decided[int(step[0])]) if whole else _first(came)
        end = finish if finish is not None else self.window.end_ns if whole else None
        itl = np.sort(np.diff(came)) if has_first else _NONE
        stretches = self._stretches(begin, end, finish, step, sampled[: len(came)], again) if whole else []
        bounds = [] if begin is None else [begin, *np.maximum(came, begin).tolist()]
        gaps = tuple(
            TokenGap(
                a,
                b,
                int(sampled[index]) if whole else -1,
                self._parts(stretches, mine, a, b),
                self._prefill_between(request, a, b) if whole else 0,
            )
            for index, (a, b) in enumerate(pairwise(bounds))
        )
        return Life(
            request=request,
            arrive_ns=arrive,
            start_ns=begin,
            end_ns=end,
            finished=finish is not None,
            ttft_ns=int(came[0]) - arrive if arrive is not None and has_first else None,
            itl_ns=itl,
            steps=len(step),
            preemptions=len(again),
            recomputed=int(repeated.tokens.sum()),
            dropped=len(sampled) - len(came) if whole and finish is not None else 0,
            parts_ns=self._parts(stretches, mine, begin, end)
            if whole and begin is not None and end is not None
            else None,
            gaps=gaps,
        )

    def _ridden(self, rows: Int64) -> Int64:
        """The rows of riders whose step the device computed."""
        return rows[np.isin(self.riders.step[rows], self.turns.steps)]

    def _stretches(
        self, begin: int | None, end: int | None, finish: int | None, step: Int64, sampled: Int64, again: Int64
    ) -> list[_Stretch]:
        """The life in order, cut where its part is not for the device to tell."""
        assert begin is not None
        assert end is not None
        first = max(begin, self.decided[int(step[0])])
        looked = int(np.searchsorted(self.decisions, begin))
        seen = min(int(self.decisions[looked]) if looked < len(self.decisions) else first, first)
        last = min(self._computed(int(sampled[-1])), end) if finish is not None and len(sampled) else end
        found = [_Stretch(begin, seen, "not_arrived"), _Stretch(seen, first, "queue")]
        at = first
        for row in again.tolist():
            before, after = int(step[row - 1]), int(step[row])
            taken = min(each for each in (before + 1, after) if each in self.decided)
            lost = max(self.decided[taken], self._computed(before), at)
            back = max(self.decided[after], lost)
            found += [_Stretch(at, lost, None), _Stretch(lost, back, "preempted")]
            at = back
        found += [_Stretch(at, max(last, at), None), _Stretch(max(last, at), end, "delivery")]
        return [_Stretch(max(a, begin), min(b, end), part) for a, b, part in found]

    def _computed(self, step: int) -> int:
        return int(self.turns.ends_ns[np.searchsorted(self.turns.steps, step)])

    def _parts(self, stretches: list[_Stretch], mine: Int64, start: int, end: int) -> dict[str, int]:
        """The parts of what of a life lies in [start, end)."""
        found = dict.fromkeys(PARTS, 0)
        for stretch in stretches:
            a, b = max(stretch.start, start), min(stretch.end, end)
            if a >= b:
                continue
            told = [(stretch.part, b - a)] if stretch.part is not None else self._by_device(mine, a, b)
            for part, ns in told:
                found[part] = found.get(part, 0) + ns
        return found

    def _by_device(self, mine: Int64, start: int, end: int) -> Iterator[tuple[str, int]]:
        """What the device did from ``start`` to ``end``, as it concerns the request of these rows."""
        device = self.turns
        first, last = np.searchsorted(device.end, start, side="right"), np.searchsorted(device.start, end)
        length = np.minimum(device.end[first:last], end) - np.maximum(device.start[first:last], start)
        step, state = device.step[first:last], device.state[first:last]
        steps = self.riders.step[mine]
        row = np.minimum(np.searchsorted(steps, step), len(steps) - 1)
        rides, decode = steps[row] == step, self.riders.decode[mine][row] == 1
        active = state < 0
        for part, chosen in (
            ("other_batch", ~rides),
            ("prefill", rides & active & ~decode),
            ("decode", rides & active & decode & (state == ALONE)),
            ("others_prefill", rides & active & decode & (state != ALONE)),
        ):
            yield part, int(length[chosen].sum())
        idle = rides & ~active
        for cause in np.unique(state[idle]).tolist():
            yield self.labels[cause], int(length[idle & (state == cause)].sum())
        if (outside := end - start - int(length.sum())) > 0:
            yield UNTRACED, outside

    def _prefill_between(self, request: int, start: int, end: int) -> int:
        """The most tokens that a step whose turn lies in [start, end) has in prefill, without those of one request."""
        device = self.turns
        first, last = np.searchsorted(device.end, start, side="right"), np.searchsorted(device.start, end)
        steps = np.unique(device.step[first:last][device.state[first:last] < 0]).tolist()
        return max((sum(n for who, n in self.prefill.get(step, ()) if who != request) for step in steps), default=0)


_NONE = np.empty(0, dtype=np.int64)


def _by_request(column: Int64) -> dict[int, Int64]:
    """The rows of each request, in their order."""
    order = np.argsort(column, kind="stable")
    found, first = np.unique(column[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True)) if len(found) else {}


def _first(time: Int64) -> int | None:
    return int(time[0]) if len(time) else None


def _decisions(trace: Trace) -> tuple[Int64, dict[int, int]]:
    """When the engine looked for requests, and when it decided on each step: the start of its last ``schedule``.

    Of a step without such a span, the start of its first work on the host, or of its compute.
    """
    decided: dict[int, int] = {}
    schedule = np.isin(trace.name_id, trace.ids_of("schedule")) & (trace.kind == Kind.CPU_WORK)
    known = trace.step >= 0
    for rows in (
        np.flatnonzero(known & (trace.kind == Kind.GPU_COMPUTE))[::-1],
        np.flatnonzero(known & (trace.kind == Kind.CPU_WORK))[::-1],
        np.flatnonzero(known & schedule),
    ):
        decided.update(zip(trace.step[rows].tolist(), trace.start_ns[rows].tolist(), strict=True))
    looked = trace.start_ns[schedule] if schedule.any() else np.sort(np.array([*decided.values()], dtype=np.int64))
    return looked, decided


def _prefill_of_steps(riders: RiderTable) -> dict[int, list[tuple[int, int]]]:
    """(request, tokens) of the rows of prefill of each step."""
    found: dict[int, list[tuple[int, int]]] = {}
    rows = np.flatnonzero(riders.decode == 0)
    columns = (riders.step[rows], riders.request[rows], riders.tokens[rows])
    for step, request, tokens in zip(*(each.tolist() for each in columns), strict=True):
        found.setdefault(step, []).append((request, tokens))
    return found
