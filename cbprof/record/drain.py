"""The drain: takes what the engine's thread noted, finds the device times, and writes spans to the sink.

An item of the queue is a method of the drain and its arguments. Appending it to a deque takes no lock, and everything
that costs more than that happens here, on another thread and in short bursts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from cbprof.record.clock import DeviceClock, Handle, Times
from cbprof.record.edges import EdgeCounter
from cbprof.trace import NONE, BatchPhase, Kind, Lane, RequestEvent, SpanSink

if TYPE_CHECKING:
    from cbprof.engine.devices.base import Stream, StreamKind

BURST = 32
"""Records written before the drain lets go of the GIL. Python would let it hold on for 5 ms, as long as a step of the
engine may take: when the wait for the device returns, the engine's thread would stand in line for all that time."""

BREATH_S = 20e-6
"""Any sleep but 0 takes the thread off its core and hands over the GIL; the kernel makes it 50 us or more."""

DEVICE_KIND: Mapping[StreamKind, Kind] = MappingProxyType(
    {"h2d": Kind.GPU_H2D, "compute": Kind.GPU_COMPUTE, "d2h": Kind.GPU_D2H}
)


class HostSpan:
    """A span of the host, in nanoseconds of its clock."""

    __slots__ = ("end_ns", "kind", "name", "slot", "start_ns", "step")

    kind: Kind
    name: str
    step: int
    slot: int
    start_ns: int
    end_ns: int


class LaunchSpan(HostSpan):
    """A span of the host in which work was queued on ``stream``; ``handle`` is the clock's, None if there is none."""

    __slots__ = ("handle", "stream")

    stream: Stream
    handle: Handle | None


class _Pending(NamedTuple):
    """A launch whose device times are not known yet, and the link between the two spans."""

    launch: LaunchSpan
    link: int


class Drain:
    """Writes to ``sink`` what stands in ``queue``. Times in the sink count from ``origin_ns``.

    ``lane`` is the host lane, ``device`` numbers the lanes of the device. The first error stops the writing, is kept
    as ``failure``, and leaves the run alone.
    """

    def __init__(
        self, sink: SpanSink, clock: DeviceClock, *, lane: str, device: int, origin_ns: int, every_token: bool
    ) -> None:
        self.queue: deque[tuple[Any, ...]] = deque()
        self.edges = EdgeCounter()
        self.spans = 0
        self.failure: Exception | None = None
        self._sink = sink
        self._flush: Callable[[], object] = getattr(sink, "flush", lambda: None)  # a TraceBuilder has none
        self._clock = clock
        self._host_lane = sink.lane(Lane(lane))
        self._device = device
        self._every_token = every_token
        self._origin_ns = origin_ns
        self._pending: deque[_Pending] = deque()
        self._links = count()
        self._started: set[int] = set()  # requests that had their first token and are not finished
        self._burst = 0
        self._breathes = True

    @property
    def unresolved(self) -> int:
        """Device spans whose times are not known yet."""
        return len(self._pending)

    def run(self, *, final: bool) -> None:
        """Write what has been noted so far, and the device spans whose times are known by now.

        ``final``: nothing else is running, so take an anchor now, ask for every device span, and do not pause.
        """
        if self.failure is not None:
            self.queue.clear()
            return
        self._breathes = not final
        try:
            for _ in range(len(self.queue)):
                write, *args = self.queue.popleft()
                write(*args)
            self._clock.anchor(final=final)
            self._resolve(every=final)
            self._flush()
        except Exception as error:
            self.failure = error

    def _resolve(self, *, every: bool) -> None:
        """Write device spans, up to the first whose times are not known yet, or past it if ``every``."""
        for _ in range(len(self._pending)):
            times = self._clock.resolve(self._pending[0].launch.handle)
            if times is not None:
                self._write_device_span(self._pending.popleft(), times)
            elif every:
                self._pending.rotate(-1)
            else:
                break

    def host_span(self, span: HostSpan, link: int = NONE) -> None:
        self._sink.span(
            self._host_lane,
            span.kind,
            span.name,
            span.start_ns - self._origin_ns,
            span.end_ns - span.start_ns,
            step=span.step,
            slot=span.slot,
            link=link,
        )
        self.spans += 1
        self._breathe()

    def launch_span(self, launch: LaunchSpan) -> None:
        """The host's span now, the device's as soon as its times are known."""
        if launch.handle is None:
            self.host_span(launch)
            return
        link = next(self._links)
        self._pending.append(_Pending(launch, link))
        self.host_span(launch, link)

    def _write_device_span(self, pending: _Pending, times: Times) -> None:
        launch, link = pending
        stream = launch.stream.kind
        self._sink.span(
            self._sink.lane(Lane(stream, self._device)),
            DEVICE_KIND[stream],
            stream,
            times.start_ns - self._origin_ns,
            times.end_ns - times.start_ns,
            step=launch.step,
            slot=launch.slot,
            link=link,
        )
        self.spans += 1
        self._breathe()

    def batch(self, step: int, tokens: int, requests: int, context: int, phase: BatchPhase) -> None:
        self._sink.batch(step, tokens=tokens, requests=requests, context=context, phase=phase)

    def tokens(self, time_ns: int, produced: tuple[int, ...], finished: tuple[int, ...]) -> None:
        for request in produced:
            if request not in self._started:
                self.request(RequestEvent.FIRST, request, time_ns)
            elif self._every_token:
                self.request(RequestEvent.TOKEN, request, time_ns)
        self._started.update(produced)
        for request in finished:
            self.request(RequestEvent.FINISH, request, time_ns)
        self._started.difference_update(finished)

    def request(self, event: RequestEvent, request: int, time_ns: int) -> None:
        self._sink.request(event, request, time_ns - self._origin_ns)
        self._breathe()

    def _breathe(self) -> None:
        """Let the engine's thread have the GIL after every burst."""
        self._burst += 1
        if self._burst >= BURST and self._breathes:
            self._burst = 0
            time.sleep(BREATH_S)
