"""A recording under way: the drain and the thread that it runs on, from the first span to the last.

::

    engine's threads                          queue                 drain thread, every 0.25 s
    enter   stamp, then start event
    ...     the engine's work
    leave   end event, then stamp   ->   (write, span), ...   ->   device times from the clock   ->   sink

What feeds it: :class:`~cbprof.record.span_tracer.SpanTracer` from our own loops, :class:`~cbprof.record.tracer.Tracer`
from anybody's code.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakSet

from cbprof.errors import CbprofError
from cbprof.meta import Edge, ThreadTime
from cbprof.numbers import counted
from cbprof.record.devices import Devices
from cbprof.record.drain import DeviceLane, Drain, HostSpan, LaunchSpan
from cbprof.record.garbage import GARBAGE_COLLECTION, GarbageCollections
from cbprof.record.lanes import HostLanes
from cbprof.record.live import Activity
from cbprof.record.meter import Meter
from cbprof.record.run_queue import RunQueue
from cbprof.riders import Riders
from cbprof.trace import NONE, BatchPhase, Kind, Lane, RequestEvent, SpanSink

DRAIN_PERIOD_S = 0.25

BACKLOG = 8192
"""Records that may wait for the drain. An engine that never lets go of the GIL starves the drain's thread: from here on
its own threads wait until half of them are written, so that memory is bounded and a kill loses no more than these and
the :data:`~cbprof.record.drain.AT_ONCE` being written, with the device spans whose times are not known by then."""

BACKLOG_PHASE = "recorder"
"""What such a wait is called in the trace: work of the host that the recording costs."""

_PAUSE_S = 0.0005


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording holds, for its metadata. ``dropped`` counts device spans whose times never became known."""

    tokens: int
    spans: int
    dropped: int
    clock_error_ns: int | None
    device_error_ns: int | None
    edges: tuple[Edge, ...]
    threads: tuple[ThreadTime, ...]


class Recorder:
    """Everything noted ends up in ``sink``.

    ``now`` is the host's clock in nanoseconds, the one that the clocks of devices map to. Times in the sink count from
    ``origin_ns`` on it, or from the construction of the recorder. :meth:`start` starts the thread that drains; without
    it everything waits for :meth:`drain` or :meth:`close`. ``token_count`` is the number of tokens so far.

    A request's arrival, each of its tokens and its end are recorded; the tokens of one step are one record.

    A process that is forked off records nothing: the recording goes on in the parent alone.
    """

    def __init__(
        self,
        sink: SpanSink,
        *,
        now: Callable[[], int] = time.perf_counter_ns,
        origin_ns: int | None = None,
    ) -> None:
        self.origin_ns = now() if origin_ns is None else origin_ns
        self.token_count = 0
        self._run_queue = RunQueue()
        self.lanes = HostLanes(self._run_queue.joins)
        self.forked = False
        self.now = now
        self._sink = sink
        self._drain = Drain(sink, origin_ns=self.origin_ns)
        self.devices = Devices(self._drain)
        self._queue = self._drain.queue
        self._recorded: Recorded | None = None
        self._draining = threading.Lock()
        self._stop = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._collections = GarbageCollections(self.lanes, now, self._note_collection)
        _UNDER_WAY.add(self)

    def _note(self, item: tuple[Any, ...]) -> None:
        self._queue.append(item)
        if len(self._queue) > BACKLOG:
            self._let_the_drain_catch_up()

    def _let_the_drain_catch_up(self) -> None:
        """Stand still until the backlog is half as long; what that takes is in the trace."""
        begin_ns = self.now()
        if self._thread is None:
            self.drain()
        while len(self._queue) > BACKLOG // 2 and self._thread is not None and self._thread.is_alive():
            self._wake.set()
            time.sleep(_PAUSE_S)  # lets go of the GIL
        stood_still = HostSpan()
        stood_still.kind, stood_still.name = Kind.CPU_WORK, BACKLOG_PHASE
        stood_still.step = stood_still.slot = NONE
        stood_still.start_ns, stood_still.end_ns = begin_ns, self.now()
        self._queue.append((self._drain.host_span, stood_still, self.lanes.current()))

    def _note_collection(self, lane: Lane, start_ns: int, end_ns: int, facts: Mapping[str, Any]) -> None:
        """Not by :meth:`_note`, which may wait for the drain, whose thread this may be."""
        named = (lane, Kind.CPU_WORK, GARBAGE_COLLECTION, NONE)
        self._queue.append((self._drain.timed_span, *named, start_ns, end_ns, facts))

    def note_span(self, span: HostSpan) -> None:
        """``span``, taken on the calling thread or task, is complete."""
        self._note((self._drain.host_span, span, self.lanes.current()))

    def note_timed(
        self,
        lane: Lane,
        kind: Kind,
        name: str,
        step: int,
        start_ns: int,
        end_ns: int,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """A span of a lane that somebody else has timed, with :attr:`now`: the cheapest there is."""
        self._note((self._drain.timed_span, lane, kind, name, step, start_ns, end_ns, facts))

    def note_later(self, write: Callable[[], None]) -> None:
        """Call ``write`` on the drain's thread: what is worked out there costs the engine's thread nothing."""
        self._note((write,))

    def write_arrival(self, request: int, time_ns: int) -> None:
        """A request came, from what :meth:`note_later` calls."""
        self._drain.request(RequestEvent.ARRIVE, request, time_ns)

    def write_batch(
        self, step: int, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        """The facts of a batch, from what :meth:`note_later` calls."""
        self._drain.batch(step, tokens, requests, context, phase, riders)

    def write_tokens(self, time_ns: int, produced: Iterable[int], more: Iterable[int], finished: Iterable[int]) -> None:
        """These requests got a token each at ``time_ns``, then those of ``more`` one for each time that they are named;
        from what :meth:`note_later` calls."""
        produced, more = tuple(produced), tuple(more)
        self._drain.tokens(time_ns, produced, ())
        self._drain.tokens(time_ns, more, tuple(finished))
        self.token_count += len(produced) + len(more)

    def note_launch(self, launch: LaunchSpan, goes_to: DeviceLane) -> None:
        """``launch``, taken on the calling thread or task, is complete; what it queued may not be."""
        self._note((self._drain.launch_span, launch, self.lanes.current(), goes_to))

    def note_batch(
        self, step: int, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        """The facts of a batch; inside its ``schedule`` phase, so that the sink gets them before that span."""
        self._note((self._drain.batch, step, tokens, requests, context, phase, riders))

    def note_arrival(self, request: int, time_ns: int) -> None:
        """A request came at ``time_ns`` of the host's clock."""
        self._note((self._drain.request, RequestEvent.ARRIVE, request, time_ns))

    def note_tokens(self, produced: Iterable[int], finished: Iterable[int]) -> None:
        """These requests got a token each just now; ``finished`` ended with it."""
        produced = tuple(produced)
        self._note((self._drain.tokens, self.now(), produced, tuple(finished)))
        self.token_count += len(produced)

    def start(self) -> Self:
        """Start the thread that writes spans while the run goes on."""
        self._thread = threading.Thread(target=self._keep_draining, name="cbprof drain", daemon=True)
        self._thread.start()
        self._collections.begin()
        return self

    def _keep_draining(self) -> None:
        while not self._stop:
            self._wake.wait(DRAIN_PERIOD_S)
            self._wake.clear()
            self.drain(hurry=len(self._queue) > BACKLOG // 2)
            self._run_queue.sample_if_due(time.monotonic())

    def drain(self, *, final: bool = False, hurry: bool = False) -> None:
        """Write what has been noted so far; with ``final``, as if nothing else were running any more.

        ``hurry``: without pauses for the engine's threads.
        The first error stops the recording but not the run; :meth:`close` raises it.
        """
        with self._draining:
            self._drain.run(final=final, hurry=hurry)

    def edges(self) -> list[Edge]:
        """The orderings between streams that the engine asked for, as far as they have been drained."""
        return self._drain.edges.edges()

    def activity(self) -> Activity | None:
        """How active the first device was in the last second that is known."""
        return self._drain.activity()

    def meter(self) -> Meter:
        """Sums up what is recorded from the first call on: it costs the drain's thread a little, so it is asked for."""
        if self._drain.meter is None:
            self._drain.meter = Meter()
        return self._drain.meter

    @property
    def spans(self) -> int:
        """The number of spans written so far."""
        return self._drain.spans

    def close(self, *, patience_s: float = 5.0) -> Recorded:
        """Write everything, waiting up to ``patience_s`` seconds for the device, and stop the drain thread.

        A phase that is still open is not recorded. Raises :class:`CbprofError` if the recording failed on the way.
        """
        if self._recorded is None:
            self._collections.end()
            self._stop = True
            self._wake.set()
            if self._thread is not None:
                self._thread.join()
            self._run_queue.sample()
            self._drain_to_the_end(patience_s)
            errors = self._drain.errors
            self._drain.close_clocks()
            _UNDER_WAY.discard(self)
            self._recorded = Recorded(
                tokens=self.token_count,
                spans=self._drain.spans,
                dropped=self._drain.unresolved,
                clock_error_ns=errors.clock_error_ns,
                device_error_ns=errors.device_error_ns,
                edges=tuple(self.edges()),
                threads=self._run_queue.times(),
            )
        if (failure := self._drain.failure) is not None:
            reason = (str(failure) or type(failure).__name__).splitlines()[0]
            raise CbprofError(f"recording stopped after {counted(self._drain.spans, 'span')}: {reason}") from failure
        return self._recorded

    def _drain_to_the_end(self, patience_s: float) -> None:
        self.drain(final=True)
        delay_s = 0.001
        while self._drain.unresolved and self._drain.failure is None and patience_s > 0:
            time.sleep(min(delay_s, patience_s))
            patience_s -= delay_s
            delay_s *= 2
            self.drain(final=True)

    def _before_fork(self) -> None:
        """Empty the buffers, or both processes would write them; take the lock, or a thread that the child lacks could
        hold it there."""
        self._draining.acquire()
        with suppress(Exception):  # the drain reports a full disk
            getattr(self._sink, "flush", lambda: None)()

    def _after_fork(self, *, in_child: bool) -> None:
        self._draining.release()
        if in_child:
            self.forked = True
            self._collections.end()
            self._queue = deque(maxlen=0)
            getattr(self._sink, "disown", lambda: None)()


_UNDER_WAY: WeakSet[Recorder] = WeakSet()


def _before_fork() -> None:
    global _held  # noqa: PLW0603 - the same recorders must be let go that were held
    _held = list(_UNDER_WAY)
    for recorder in _held:
        recorder._before_fork()


def _after_fork(*, in_child: bool) -> None:
    for recorder in _held:
        recorder._after_fork(in_child=in_child)


_held: list[Recorder] = []
os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(in_child=False),
    after_in_child=lambda: _after_fork(in_child=True),
)
