"""The clock of a CUDA device: pairs of events on the engine's streams, aligned to the host's clock by anchors.

An anchor is an event on a stream of our own, with the host's clock read before its record and after the first query
that finds it done. So the engine is never synchronised with, and never waits, but for the few microseconds in which
this thread holds the GIL.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cbprof.errors import EngineError
from cbprof.record.clocks import captures
from cbprof.record.clocks.alignment import Alignment, Bracket
from cbprof.record.clocks.base import ClockErrors, Times

if TYPE_CHECKING:
    import torch

ANCHOR_PERIOD_NS = 1_000_000_000
"""Between anchors. Elapsed times of 1 to 2 s are exact to 61 ns; spans are resolved only behind the next anchor."""

TRIES = 5
"""Events tried for one anchor; the one with the tightest bracket is taken."""

FINAL_TRIES = 50
"""The first and the last anchor are taken beside the run, not in it, and can be tried for longer."""

TIGHT_NS = 15_000
"""A bracket that is good enough. A wider one (the device or this thread was busy) is refused, and the next call tries
again, until the last anchor is ``PATIENCE_NS`` old. Elapsed times of 4 s are still exact to 244 ns."""

PATIENCE_NS = 3_000_000_000

SPIN_LIMIT_NS = 200_000
"""The longest spin on one event, and with it the longest hold of the GIL."""

FINAL_SPACING_NS = 20_000_000
"""The last two anchors are at least this far apart, so that the errors of both do not distort short spans between."""

MOST_PAIRS = 1 << 16
"""Event pairs in flight at most. A stream that stalls holds up the others' spans, too; work that is launched meanwhile
and finds no pair has a span on the host, and none on the device."""

PAUSE_S = 20e-6
"""Between tries. A sleep of any length hands the GIL to the engine's thread; the kernel makes it 50 us or more."""


class TimingEvent(Protocol):
    """What is used of ``torch.cuda.Event``. It takes the stream explicitly: the current one may be any."""

    def record(self, stream: Any) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float: ...


class EventPair(NamedTuple):
    """Two events, before and behind some work on one stream."""

    start: TimingEvent
    end: TimingEvent


class CudaClock:
    """Times of one CUDA device.

    Its streams are those of the engine (with their ``torch.cuda.Stream`` as ``raw``) or plain ``torch.cuda.Stream``.
    ``pairs`` event pairs are made at once; more are made when more are in flight, at some 15 us each on the engine's
    thread, up to :data:`MOST_PAIRS`. Raises :class:`EngineError` if the device does not get to an event within seconds.
    """

    def __init__(
        self, device: torch.device | int = 0, *, pairs: int = 2048, now: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        import torch

        self._new_event: Callable[[], TimingEvent] = partial(torch.cuda.Event, enable_timing=True)
        new_stream: Callable[..., Any] = torch.cuda.Stream
        # A thread of ours has device 0 current, and a query would make a context there: half a GB, and a long stop.
        self._current: AbstractContextManager[object] = torch.cuda.device(device)
        self._now = now
        # High priority has a pool of its own, so this can never be one of the engine's streams.
        self._stream = new_stream(device, priority=-1)
        self._idle = deque(EventPair(self._warm_event(), self._warm_event()) for _ in range(pairs))
        self._pairs = pairs
        self._stream.synchronize()
        self._quiet = captures.QUIET
        if (graph_class := getattr(torch.cuda, "CUDAGraph", None)) is not None:
            captures.watch(graph_class)
        self._alignment: Alignment[TimingEvent] = Alignment(lambda a, b: a.elapsed_time(b))
        self._losers: deque[TimingEvent] = deque()  # events that were tried for an anchor, to be tried again
        self._anchored_ns = 0
        for _ in range(100):
            self.anchor(final=True)
            if len(self._alignment):
                return
        raise EngineError(f"the GPU ({device}) does not answer: is another process keeping it busy?")

    def _warm_event(self) -> TimingEvent:
        """An event that exists on the device: CUDA creates it at its first record, for 6 us."""
        event = self._new_event()
        event.record(self._stream)
        return event

    def begin(self, stream: Any) -> EventPair | None:
        try:
            pair = self._idle.popleft()
        except IndexError:
            if self._pairs >= MOST_PAIRS:
                return None
            self._pairs += 1
            pair = EventPair(self._new_event(), self._new_event())
        pair.start.record(getattr(stream, "raw", stream))
        return pair

    def end(self, stream: Any, handle: EventPair | None) -> EventPair | None:
        if handle is None:
            return None
        handle.end.record(getattr(stream, "raw", stream))
        return handle

    def resolve(self, handle: EventPair) -> Times | None:
        if not self._quiet.acquire(blocking=False):
            return None
        try:
            with self._current:
                end_ns = self._alignment.host_ns(handle.end) if handle.end.query() else None
                start_ns = self._alignment.host_ns(handle.start) if end_ns is not None else None
        finally:
            self._quiet.release()
        if start_ns is None or end_ns is None:
            return None
        self._idle.append(handle)
        return Times(start_ns, end_ns)

    def anchor(self, *, final: bool = False) -> None:
        age_ns = self._now() - self._anchored_ns
        if final:
            time.sleep(max(0, FINAL_SPACING_NS - age_ns) / 1e9)
        elif age_ns < ANCHOR_PERIOD_NS:
            return
        else:
            captures.stand_apart()  # this is a thread of ours
        if not self._quiet.acquire(blocking=False):
            return
        try:
            with self._current:
                event, bracket = self._tightest(FINAL_TRIES if final else TRIES)
                if event is not None and (final or bracket.width_ns <= TIGHT_NS or age_ns > PATIENCE_NS):
                    self._alignment.add_anchor(event, bracket)
                    self._anchored_ns = bracket.after_ns
        finally:
            self._quiet.release()

    def _tightest(self, tries: int) -> tuple[TimingEvent | None, Bracket]:
        """The event of ``TRIES`` with the tightest bracket, or of up to ``tries`` until one is tight.

        No event if the device got to none of them within the spin limit.
        """
        best: TimingEvent | None = None
        tightest = Bracket(0, SPIN_LIMIT_NS)
        for attempt in range(tries):
            if attempt >= TRIES and tightest.width_ns <= TIGHT_NS:
                break
            event = self._losers.pop() if self._losers else self._warm_event()
            before_ns = self._now()
            event.record(self._stream)
            while not (done := event.query()) and self._now() - before_ns < SPIN_LIMIT_NS:
                pass
            bracket = Bracket(before_ns, self._now())
            loser: TimingEvent | None = event
            if done and bracket.width_ns < tightest.width_ns:
                loser, best, tightest = best, event, bracket
            if loser is not None:
                self._losers.append(loser)
            time.sleep(PAUSE_S)
        return best, tightest

    def paused(self) -> AbstractContextManager[object]:
        """While a graph is captured, a query by any thread may end the capture: the clock does without."""
        return self._quiet

    @property
    def errors(self) -> ClockErrors:
        return self._alignment.errors

    def close(self) -> None:
        self._idle.clear()
