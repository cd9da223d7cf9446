"""Takes the spans of a run: stamps on the engine's thread, everything else on another.

::

    engine's thread                           queue                 drain thread, every 0.25 s
    enter   stamp, then start event
    ...     the engine's work
    leave   end event, then stamp   ->   (write, span), ...   ->   device times from the clock   ->   sink

The host's span contains the two event calls, so that their cost shows where it falls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cbprof.errors import CbprofError
from cbprof.record.clock import DeviceClock
from cbprof.record.drain import Drain, HostSpan, LaunchSpan
from cbprof.record.edges import Edge
from cbprof.trace import NONE, Kind, RequestEvent, SpanSink

if TYPE_CHECKING:
    from cbprof.engine.batch import Batch
    from cbprof.engine.devices.base import Event, Stream

DRAIN_PERIOD_S = 0.25

CAPTURE = "capture"
"""The phase in which an engine captures a graph, while nobody may query the device."""

WORK, WAIT = Kind.CPU_WORK, Kind.CPU_WAIT  # looking a member up in its class costs as much as a stamp


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording holds, for its metadata. ``dropped`` counts device spans whose times never became known."""

    tokens: int
    spans: int
    dropped: int
    clock_error_ns: int | None
    device_error_ns: int | None
    edges: tuple[Edge, ...]


class SpanTracer:
    """The :class:`~cbprof.engine.hooks.Hooks` that records: every span ends up in ``sink``.

    ``lane`` names the host lane, ``device`` numbers the device lanes; ``now`` is the host's clock in nanoseconds, the
    one that ``clock`` maps to. Times in the sink count from the construction of the tracer (``origin_ns``). All hooks
    are called on one thread. :meth:`start` starts the thread that drains; without it everything waits for
    :meth:`drain` or :meth:`close`. ``token_count`` is the number of tokens so far.

    A request's arrival, first token and end are recorded; with ``every_token`` its other tokens too, which then make up
    most of the file.
    """

    def __init__(
        self,
        sink: SpanSink,
        clock: DeviceClock,
        *,
        lane: str = "engine",
        now: Callable[[], int] = time.perf_counter_ns,
        device: int = 0,
        every_token: bool = False,
    ) -> None:
        self.origin_ns = now()
        self.token_count = 0
        self._clock = clock
        self._now = now
        self._drain = drain = Drain(
            sink, clock, lane=lane, device=device, origin_ns=self.origin_ns, every_token=every_token
        )
        self._note = drain.queue.append
        self._write_host, self._write_launch = drain.host_span, drain.launch_span
        self._recorded: Recorded | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

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
        """Called inside the ``schedule`` phase of the batch, so that the sink gets the facts before the span."""
        self._note((self._drain.batch, batch.step, batch.num_tokens, batch.num_requests, batch.context, batch.phase))

    def tokens(self, produced: Mapping[int, int], finished: list[int]) -> None:
        self._note((self._drain.tokens, self._now(), tuple(produced), tuple(finished)))
        self.token_count += len(produced)

    def arrived(self, request: int, time_ns: int) -> None:
        self._note((self._drain.request, RequestEvent.ARRIVE, request, time_ns))

    def recorded(self, event: Event, stream: Stream, step: int) -> None:
        self._note((self._drain.edges.recorded, event, stream, step))

    def waited(self, event: Event, waiter: Stream | None, step: int) -> None:
        self._note((self._drain.edges.waited, event, waiter, step))

    def start(self) -> Self:
        """Start the thread that writes spans while the run goes on."""
        self._thread = threading.Thread(target=self._keep_draining, name="cbprof drain", daemon=True)
        self._thread.start()
        return self

    def _keep_draining(self) -> None:
        while not self._stop.wait(DRAIN_PERIOD_S):
            self.drain()

    def drain(self, *, final: bool = False) -> None:
        """Write what has been noted so far; with ``final``, as if nothing else were running any more.

        The first error stops the recording but not the run; :meth:`close` raises it.
        """
        self._drain.run(final=final)

    def edges(self) -> list[Edge]:
        """The orderings between streams that the engine asked for, as far as they have been drained."""
        return self._drain.edges.edges()

    def close(self, *, patience_s: float = 5.0) -> Recorded:
        """Write everything, waiting up to ``patience_s`` seconds for the device, and stop the drain thread.

        A phase that is still open is not recorded. Raises :class:`CbprofError` if the recording failed on the way.
        """
        if self._recorded is None:
            self._stop.set()
            if self._thread is not None:
                self._thread.join()
            self._drain_to_the_end(patience_s)
            errors = self._clock.errors
            self._clock.close()
            self._recorded = Recorded(
                tokens=self.token_count,
                spans=self._drain.spans,
                dropped=self._drain.unresolved,
                clock_error_ns=errors.clock_error_ns,
                device_error_ns=errors.device_error_ns,
                edges=tuple(self.edges()),
            )
        if (failure := self._drain.failure) is not None:
            reason = (str(failure) or type(failure).__name__).splitlines()[0]
            raise CbprofError(f"recording stopped after {self._drain.spans} spans: {reason}") from failure
        return self._recorded

    def _drain_to_the_end(self, patience_s: float) -> None:
        self.drain(final=True)
        delay_s = 0.001
        while self._drain.unresolved and self._drain.failure is None and patience_s > 0:
            time.sleep(min(delay_s, patience_s))
            patience_s -= delay_s
            delay_s *= 2
            self.drain(final=True)


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
        self.start_ns = self._tracer._now()

    def __exit__(self, *error: object) -> None:
        tracer = self._tracer
        self.end_ns = tracer._now()
        tracer._note((tracer._write_host, self))


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
        self.start_ns = tracer._now()
        self.handle = tracer._clock.begin(self.stream)

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        tracer = self._tracer
        # After an error nobody knows how much of the work was queued: keep the host's span, drop the device's.
        self.handle = tracer._clock.end(self.stream, self.handle) if error is None else None
        self.end_ns = tracer._now()
        tracer._note((tracer._write_launch, self))
