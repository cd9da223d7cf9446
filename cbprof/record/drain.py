"""The drain: takes what the engine's threads noted, finds the device times, and writes spans to the sink.

An item of the queue is a method of the drain and its arguments. Appending it to a deque takes no lock, and everything
that costs more than that happens here, on another thread and in short bursts.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cbprof.meta import Edge
from cbprof.record.clocks.base import BlockingClock, ClockErrors, DeviceClock, Handle, Times
from cbprof.record.live import Activity, LiveActivity
from cbprof.record.meter import Meter
from cbprof.riders import Riders
from cbprof.trace import NONE, BatchPhase, Kind, Lane, RequestEvent, SpanSink

if TYPE_CHECKING:
    from cbprof.engine.devices.base import Event, Stream, StreamKind

Waiter = Literal["h2d", "compute", "d2h", "host"]


class _Record(NamedTuple):
    """The latest record of an event. Holding the event keeps its id from being used again."""

    event: Event
    stream: StreamKind
    step: int


class EdgeCounter:
    """Counts the distinct edges among the records and waits of a run, given in the order of their calls."""

    def __init__(self) -> None:
        self._latest: dict[int, _Record] = {}
        self._counts: Counter[tuple[str, StreamKind | None, Waiter, int | None]] = Counter()

    def recorded(self, event: Event, stream: Stream, step: int) -> None:
        self._latest[id(event)] = _Record(event, stream.kind, step)

    def waited(self, event: Event, waiter: Stream | None, step: int) -> None:
        record = self._latest.get(id(event))
        who: Waiter = "host" if waiter is None else waiter.kind
        if record is None:
            self._counts[event.name, None, who, None] += 1
        else:
            self._counts[event.name, record.stream, who, step - record.step] += 1

    def edges(self) -> list[Edge]:
        """The edges so far, in the order in which they were first seen."""
        return [Edge(*edge, count) for edge, count in self._counts.items()]


BURST = 8
"""Records written before the drain lets go of the GIL. Python would let it hold on for 5 ms, as long as a step of the
engine may take: when the wait for the device returns, the engine's thread would stand in line for all that time."""

BREATH_S = 20e-6
"""Any sleep but 0 takes the thread off its core and hands over the GIL; the kernel makes it 50 us or more."""


AT_ONCE = 1024
"""Records written between two flushes: what a kill of the process loses of those taken from the queue."""


class HostSpan:
    """A span of the host, in nanoseconds of its clock. ``facts``: what else is known of it, if it has been set."""

    __slots__ = ("end_ns", "facts", "kind", "name", "slot", "start_ns", "step")

    kind: Kind
    name: str
    step: int
    slot: int
    start_ns: int
    end_ns: int
    facts: Mapping[str, Any]


class LaunchSpan(HostSpan):
    """A span of the host in which work was queued on ``stream``; ``handle`` is the clock's, None if there is none."""

    __slots__ = ("handle", "stream")

    stream: Any
    handle: Handle | None


class TimedDevice:
    """A device, the clock that knows its times, and its spans whose times are not known yet, as they were launched."""

    def __init__(self, index: int, clock: DeviceClock) -> None:
        self.index = index
        self.clock = clock
        self.blocks = isinstance(clock, BlockingClock)
        """Whether the host does its work, and cannot do its own meanwhile."""
        self.pending: deque[_Pending] = deque()
        self.live = LiveActivity()


class DeviceLane(NamedTuple):
    """Where a device span goes, and what it is called there."""

    device: TimedDevice
    lane: Lane
    kind: Kind
    name: str


class _Pending(NamedTuple):
    """A launch whose device times are not known yet, and the link between the two spans."""

    launch: LaunchSpan
    link: int
    goes_to: DeviceLane


class Drain:
    """Writes to ``sink`` what stands in ``queue``. Times in the sink count from ``origin_ns``.

    Lanes are declared as they are met, devices by :meth:`add_device`. The first error stops the writing, is kept as
    ``failure``, and leaves the run alone. ``meter``: what sums it up meanwhile, if anybody asked.
    """

    def __init__(self, sink: SpanSink, *, origin_ns: int) -> None:
        self.queue: deque[tuple[Any, ...]] = deque()
        self.edges = EdgeCounter()
        self.spans = 0
        self.failure: Exception | None = None
        self.meter: Meter | None = None
        self._sink = sink
        self._flush: Callable[[], object] = getattr(sink, "flush", lambda: None)  # a TraceBuilder has none
        self._origin_ns = origin_ns
        self._latest_ns = 0  # the end of the last host span
        self._devices: list[TimedDevice] = []
        self._links = count()
        self._started: set[int] = set()  # requests that had their first token and are not finished
        self._burst = 0
        self._breathes = True

    def add_device(self, index: int, clock: DeviceClock) -> TimedDevice:
        """Take in a device. May be called on any thread."""
        device = TimedDevice(index, clock)
        self._devices.append(device)
        return device

    @property
    def unresolved(self) -> int:
        """Device spans whose times are not known yet."""
        return sum(len(device.pending) for device in self._devices)

    @property
    def errors(self) -> ClockErrors:
        """The error bounds of the worst clock."""
        errors = [device.clock.errors for device in self._devices]
        host = [error.clock_error_ns for error in errors if error.clock_error_ns is not None]
        device = [error.device_error_ns for error in errors if error.device_error_ns is not None]
        return ClockErrors(max(host, default=None), max(device, default=None))

    def run(self, *, final: bool, hurry: bool = False) -> None:
        """Write what has been noted so far, and the device spans whose times are known by now.

        ``final``: nothing else is running, so take an anchor now, ask for every device span, and do not pause.
        ``hurry``: do not pause either.
        """
        if self.failure is not None:
            self.queue.clear()
            return
        self._breathes = not (final or hurry)
        try:
            for written in range(1, len(self.queue) + 1):
                write, *args = self.queue.popleft()
                write(*args)
                if written % AT_ONCE == 0:
                    self._flush()
            for device in tuple(self._devices):
                device.clock.anchor(final=final)
                self._resolve(device, every=final)
            self._flush()
        except Exception as error:
            self.failure = error

    def close_clocks(self) -> None:
        for device in self._devices:
            device.clock.close()

    def activity(self) -> Activity | None:
        """How active the first device was in the last second that is known; None without a device."""
        if not self._devices:
            return None
        device = min(self._devices, key=lambda device: device.index)
        try:
            until_ns = device.pending[0].launch.start_ns - self._origin_ns  # nothing later is known
        except IndexError:
            until_ns = self._latest_ns
        return device.live.last_second(until_ns)

    def _resolve(self, device: TimedDevice, *, every: bool) -> None:
        """Write device spans, up to the first whose times are not known yet, or past it if ``every``."""
        for _ in range(len(device.pending)):
            times = device.clock.resolve(device.pending[0].launch.handle)
            if times is not None:
                self._write_device_span(device.pending.popleft(), times)
            elif every:
                device.pending.rotate(-1)
            else:
                break

    def host_span(self, span: HostSpan, lane: Lane, link: int = NONE) -> None:
        self._latest_ns = span.end_ns - self._origin_ns
        if self.meter is not None:
            self.meter.host(span.kind, span.name, span.start_ns, span.end_ns)
        self._sink.span(
            self._sink.lane(lane),
            span.kind,
            span.name,
            span.start_ns - self._origin_ns,
            span.end_ns - span.start_ns,
            step=span.step,
            slot=span.slot,
            link=link,
            extra=getattr(span, "facts", None),
        )
        self.spans += 1
        self._breathe()

    def timed_span(
        self, lane: Lane, kind: Kind, name: str, step: int, start_ns: int, end_ns: int, facts: Mapping[str, Any] | None
    ) -> None:
        self._latest_ns = end_ns - self._origin_ns
        if self.meter is not None:
            self.meter.host(kind, name, start_ns, end_ns)
        start_ns -= self._origin_ns
        self._sink.span(self._sink.lane(lane), kind, name, start_ns, self._latest_ns - start_ns, step=step, extra=facts)
        self.spans += 1
        self._breathe()

    def launch_span(self, launch: LaunchSpan, lane: Lane, goes_to: DeviceLane) -> None:
        """The host's span now, the device's as soon as its times are known."""
        if launch.handle is None:
            self.host_span(launch, lane)
            return
        link = next(self._links)
        goes_to.device.pending.append(_Pending(launch, link, goes_to))
        self.host_span(launch, lane, link)

    def _write_device_span(self, pending: _Pending, times: Times) -> None:
        launch, link, goes_to = pending
        start_ns = times.start_ns - self._origin_ns
        if goes_to.kind is Kind.GPU_COMPUTE:
            goes_to.device.live.add(start_ns, times.end_ns - self._origin_ns)
            if self.meter is not None:
                self.meter.compute(goes_to.device.index, launch.step, times.start_ns, times.end_ns)
        self._sink.span(
            self._sink.lane(goes_to.lane),
            goes_to.kind,
            goes_to.name,
            start_ns,
            times.end_ns - times.start_ns,
            step=launch.step,
            slot=launch.slot,
            link=link,
        )
        self.spans += 1
        self._breathe()

    def batch(
        self, step: int, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        self._sink.batch(step, tokens=tokens, requests=requests, context=context, phase=phase, riders=riders)

    def tokens(self, time_ns: int, produced: tuple[int, ...], finished: tuple[int, ...]) -> None:
        later = produced
        if self.meter is not None:
            self.meter.tokens(len(produced))
        if not self._started.issuperset(produced):
            later = tuple(request for request in produced if request in self._started)
            for request in produced:
                if request not in self._started:
                    self.request(RequestEvent.FIRST, request, time_ns)
            self._started.update(produced)
        if later:
            self._sink.tokens(later, time_ns - self._origin_ns)
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
