"""The tracer of our own loops: the :class:`~cbprof.engine.hooks.Hooks` that record. Others use ``cbprof.Tracer``.

The host's span contains the two event calls, so their cost is part of the phase that causes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from cbprof.record.clocks.base import DeviceClock
from cbprof.record.drain import DeviceLane, HostSpan, LaunchSpan
from cbprof.record.recorder import Recorder
from cbprof.record.spans import CAPTURE, WAIT, WORK
from cbprof.riders import PrefillRow, Riders
from cbprof.trace import NONE, Kind, Lane, SpanSink

if TYPE_CHECKING:
    from cbprof.engine.batch import Batch
    from cbprof.engine.devices.base import Event, Stream, StreamKind

DEVICE_KIND: Mapping[StreamKind, Kind] = MappingProxyType(
    {"h2d": Kind.GPU_H2D, "compute": Kind.GPU_COMPUTE, "d2h": Kind.GPU_D2H}
)


class SpanTracer(Recorder):
    """Records a run on one device. ``lane`` names the host lane, ``device`` numbers the device lanes.

    It is made, and all hooks are called, on one thread, and none of them while another process is forked off.
    """

    def __init__(
        self,
        sink: SpanSink,
        clock: DeviceClock,
        *,
        lane: str = "engine",
        now: Callable[[], int] = time.perf_counter_ns,
        device: int = 0,
        origin_ns: int | None = None,
    ) -> None:
        super().__init__(sink, now=now, origin_ns=origin_ns)
        self._clock = clock
        self._host_lane = Lane(lane)
        self.lanes.rename(lane)
        timed = self._drain.add_device(device, clock)
        self._goes_to = {
            stream: DeviceLane(timed, Lane(stream, device), kind, stream) for stream, kind in DEVICE_KIND.items()
        }

    def phase(
        self, name: str, step: int, *, slot: int = NONE, stream: Stream | None = None
    ) -> AbstractContextManager[None]:
        if stream is not None:
            return _LaunchPhase(self, name, step, slot, stream)
        if name == CAPTURE:
            return self._capture(step, slot)
        return _Phase(self, WORK, name, step, slot)

    def wait(self, name: str, step: int, *, slot: int = NONE) -> AbstractContextManager[None]:
        return _Phase(self, WAIT, name, step, slot)

    @contextmanager
    def _capture(self, step: int, slot: int) -> Iterator[None]:
        with _Phase(self, WORK, CAPTURE, step, slot), self._clock.paused():
            yield

    def batch(self, batch: Batch) -> None:
        self._note((self._write_batch, batch))

    def tokens(self, produced: Mapping[int, int], finished: list[int]) -> None:
        self.note_tokens(produced, finished)

    def arrived(self, request: int, time_ns: int) -> None:
        self.note_arrival(request, time_ns)

    def recorded(self, event: Event, stream: Stream, step: int) -> None:
        self._note((self._drain.edges.recorded, event, stream, step))

    def waited(self, event: Event, waiter: Stream | None, step: int) -> None:
        self._note((self._drain.edges.waited, event, waiter, step))

    def _write_batch(self, batch: Batch) -> None:
        """On the drain's thread: a batch and its rows do not change once it is scheduled."""
        facts = (batch.num_tokens, batch.num_requests, batch.context, batch.phase)
        self.write_batch(batch.step, *facts, riders_of(batch))

    def _write_phase(self, span: HostSpan) -> None:
        self._drain.host_span(span, self._host_lane)

    def _write_launch(self, span: LaunchSpan) -> None:
        self._drain.launch_span(span, self._host_lane, self._goes_to[span.stream.kind])


def riders_of(batch: Batch) -> Riders:
    """Who rides in a batch of our own engine."""
    decodes: list[int] = []
    prefills: list[PrefillRow] = []
    for row in batch.rows:
        if row.is_decode:
            decodes.append(row.request.id)
        else:
            prefills.append(PrefillRow(row.request.id, row.start, row.tokens, row.samples))
    return Riders(tuple(decodes), tuple(prefills))


class _Phase(HostSpan):
    """A span being taken. What stands in enter and exit is the price that the engine pays."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: SpanTracer, kind: Kind, name: str, step: int, slot: int) -> None:
        self._tracer = tracer
        self.kind = kind
        self.name = name
        self.step = step
        self.slot = slot

    def __enter__(self) -> None:
        self.start_ns = self._tracer.now()

    def __exit__(self, *error: object) -> None:
        tracer = self._tracer
        self.end_ns = tracer.now()
        tracer._note((tracer._write_phase, self))


class _LaunchPhase(LaunchSpan):
    """A span being taken that also bounds the device work which is queued inside it."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: SpanTracer, name: str, step: int, slot: int, stream: Stream) -> None:
        self._tracer = tracer
        self.kind = WORK
        self.name = name
        self.step = step
        self.slot = slot
        self.stream = stream

    def __enter__(self) -> None:
        tracer = self._tracer
        self.start_ns = tracer.now()
        self.handle = tracer._clock.begin(self.stream)

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        tracer = self._tracer
        # After an error nobody knows how much of the work was queued: keep the host's span, drop the device's.
        self.handle = tracer._clock.end(self.stream, self.handle) if error is None else None
        self.end_ns = tracer.now()
        tracer._note((tracer._write_launch, self))
