"""The public tracer, ``cbprof.Tracer``: engines mark their own phases with it.

::

    tracer = cbprof.Tracer("trace.json")        # off, unless CBPROF=1 is set
    with tracer:                                # on; the file is complete at the end of the block
        for number in range(steps):
            with tracer.step(number):
                with tracer.cpu("schedule"):
                    batch = schedule()
                with tracer.gpu("forward", stream):
                    model(batch)
                with tracer.wait("d2h"):
                    stream.synchronize()

Phases may be opened on any thread and in any asyncio task, on streams of any device. Switched off, a phase costs about
0.2 us.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar, runtime_checkable
from weakref import WeakSet

from cbprof.engine.placement import Placement
from cbprof.errors import CbprofError
from cbprof.files import FileInUseError, with_infix
from cbprof.formats import TraceWriter
from cbprof.meta import Meta
from cbprof.record import spans
from cbprof.record.clocks.base import BlockingClock, NoClock
from cbprof.record.clocks.choice import ClockOf, DeviceChoice, choose_clock, cuda_is_there
from cbprof.record.devices import StreamUse
from cbprof.record.recorder import Recorded, Recorder
from cbprof.record.spans import OFF, WAIT, WORK, OpenSpan
from cbprof.record.wrapping import with_context
from cbprof.riders import Riders
from cbprof.trace import NONE, BatchPhase, SpanSink

SWITCH = "CBPROF"
"""The environment variable that switches every tracer on, by any value but 0."""


@runtime_checkable
class TraceFile(Protocol):
    """A sink that is finished at the end, or given up: :class:`~cbprof.formats.TraceWriter`."""

    def close(self, meta: Meta) -> object: ...

    def abandon(self) -> None: ...


P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("cbprof")

_STEP: ContextVar[int] = ContextVar("cbprof step", default=NONE)


class Tracer:
    """Records the phases of an engine while it is on: from :meth:`start` (or ``with``) to :meth:`close`, or the exit.

    ``out`` is the trace to write, ``.json`` or ``.json.gz``, or a :class:`~cbprof.trace.SpanSink`. Of several ranks, as
    torchrun starts them, each says in its metadata which it is and writes ``NAME.rank00003.json``: see ``path``.

    ``device``: where device times come from. ``auto``: CUDA events where the program has a GPU; ``cuda``: the same, and
    an error where it has none; ``host``: the block of a :meth:`gpu` phase does the work itself, on the CPU; ``none``:
    no device spans; or a clock, or a function that gives the one of a device index.

    ``engine`` and ``mode`` (``sync`` or ``async``) are for readers of the trace, as is ``meta``. ``nvtx`` gives Nsight
    Systems the same ranges, ``record_function`` torch.profiler; each adds a few microseconds to a phase.

    A file that cannot be begun, or a disk that takes no more, costs the recording and never the program: one warning of
    the logger ``cbprof`` says so, ``failure`` holds the error, and the tracer stays off.
    """

    _has_switch = True
    """Whether :data:`SWITCH` switches it on."""

    def __init__(
        self,
        out: Path | str | SpanSink = "trace.json",
        *,
        device: DeviceChoice = "auto",
        engine: str = "",
        mode: Literal["sync", "async"] | None = None,
        meta: Mapping[str, Any] | None = None,
        nvtx: bool = False,
        record_function: bool = False,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.path = Path(out) if isinstance(out, str | Path) else None
        self._made_in = os.getpid()
        self.meta: dict[str, Any] = {key: value for key, value in {"engine": engine, "mode": mode}.items() if value}
        self.meta |= meta or {}
        self._sink = None if isinstance(out, str | Path) else out
        self._file: TraceFile | None = None
        self._clock_of = choose_clock(device)
        self._marks = spans.marks(nvtx=nvtx, record_function=record_function)
        self.now = now
        self._recorder: Recorder | None = None
        self._took_part = False
        self.failure: CbprofError | None = None
        if _host is not None and _host is not self:
            _guests.add(self)
            self._recorder = _host.recorder
        elif self._has_switch and os.environ.get(SWITCH, "0") not in {"", "0"}:
            self.start()

    # Marking ----------------------------------------------------------------------------------------------------------

    def step(self, number: int) -> AbstractContextManager[OpenSpan]:
        """Step ``number``: every phase inside, also in functions and tasks called from it, belongs to that batch.

        What the host does in it outside of any phase counts as work named ``step``. In an engine that works ahead, give
        the phases of another batch their own: ``tracer.wait("d2h", step=number - 1)``.
        """
        if _host is not None:
            _host.step_begins(number)
        if (recorder := self._recorder) is None:
            return OFF
        return self._marked(spans.StepSpan(recorder, number, _STEP))

    def cpu(self, name: str, *, step: int | None = None, slot: int = NONE) -> AbstractContextManager[OpenSpan]:
        """Work of the host. A phase named ``capture`` keeps the tracer away from the device, as graph capture asks."""
        if (recorder := self._recorder) is None:
            return OFF
        if name == spans.CAPTURE:
            return self._marked(spans.CaptureSpan(recorder, _STEP.get() if step is None else step, slot))
        return self._marked(spans.Span(recorder, WORK, name, _STEP.get() if step is None else step, slot))

    def wait(self, name: str, *, step: int | None = None, slot: int = NONE) -> AbstractContextManager[OpenSpan]:
        """The host is idle inside: it waits for a device, a request (``no_requests``), an ``await``."""
        if (recorder := self._recorder) is None:
            return OFF
        return self._marked(spans.Span(recorder, WAIT, name, _STEP.get() if step is None else step, slot))

    def gpu(
        self,
        name: str,
        stream: Any = None,
        *,
        use: StreamUse = "compute",
        launch: str | None = None,
        step: int | None = None,
        slot: int = NONE,
    ) -> AbstractContextManager[OpenSpan]:
        """Work that is queued on ``stream`` (a ``torch.cuda.Stream``; None: the current one) inside the block.

        It gives two linked spans: the host's, in which the work is launched (called ``launch``, else ``name`` too), and
        the device's, from when it got to the first of the work until it was done with the last. Make the stream wait
        for others *before* the block, or the waiting counts as work.
        """
        if (recorder := self._recorder) is None:
            return OFF
        stream = _current_stream() if stream is None else stream
        place = recorder.devices.place(stream, use, name, self._clock_of)
        step = _STEP.get() if step is None else step
        return self._marked(spans.DeviceSpan(recorder, place, launch or name, step, slot, stream))

    def phase(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: each call is a phase :meth:`cpu`. Of an ``async`` function, from its call to its return; what it
        awaits should stand in :meth:`wait`."""
        return lambda function: with_context(function, lambda: self.cpu(name))

    def batch(
        self,
        *,
        tokens: int,
        requests: int,
        context: int = 0,
        phase: BatchPhase = "decode",
        step: int | None = None,
        riders: Riders | None = None,
    ) -> None:
        """The facts of a batch, once it is scheduled: the tokens in it, its requests, the sum of their contexts.

        ``riders``: which requests those are. With them, ``cbprof requests`` splits the time of each.
        """
        if (recorder := self._recorder) is not None:
            recorder.note_batch(_STEP.get() if step is None else step, tokens, requests, context, phase, riders)

    def tokens(self, requests: Iterable[int], finished: Iterable[int] = ()) -> None:
        """Each of these requests (numbers of your choice) got a token just now; ``finished`` ended with it."""
        if (recorder := self._recorder) is not None:
            recorder.note_tokens(requests, finished)

    def arrived(self, request: int, time_ns: int | None = None) -> None:
        """A request came, now or at ``time_ns`` of ``time.perf_counter_ns``."""
        if (recorder := self._recorder) is not None:
            recorder.note_arrival(request, self.now() if time_ns is None else time_ns)

    def name_lane(self, name: str) -> None:
        """Call the host lane of this thread or asyncio task so, from now on."""
        if (recorder := self._recorder) is not None:
            recorder.lanes.rename(name)

    def warm_up(self, stream: Any = None) -> None:
        """Make the clock of the stream's device now, some 10 ms with CUDA, and not when its first phase is opened."""
        if (recorder := self._recorder) is not None:
            recorder.devices.warm_up(_current_stream() if stream is None else stream, self._clock_of)

    def _marked(self, span: spans.Span | spans.DeviceSpan) -> AbstractContextManager[OpenSpan]:
        self._took_part = True
        return span if self._marks is None else spans.MarkedSpan(span, self._marks)

    # Switching on and off ---------------------------------------------------------------------------------------------

    @property
    def on(self) -> bool:
        """Whether phases are recorded now."""
        return self._recorder is not None

    @property
    def clock_of(self) -> ClockOf:
        """What makes the clock of a device."""
        return self._clock_of

    @property
    def recorder(self) -> Recorder | None:
        """The recording under way: how many tokens so far, how active the device is."""
        return self._recorder

    def start(self) -> Self:
        """Switch on. Does nothing where it is on, or where an earlier recording of it failed."""
        if self._recorder is None and self not in _guests and self.failure is None:
            origin_ns, self.meta["base_time_ns"] = self.now(), time.time_ns()
            try:
                sink = self._open(Placement.or_alone(os.environ))
            except CbprofError as error:
                self._fail(error)
                return self
            self._file = sink if isinstance(sink, TraceFile) else None
            self._recorder = Recorder(sink, now=self.now, origin_ns=origin_ns)
            self._recorder.start()
            atexit.register(self.close)
        return self

    def close(self, *, complete: bool = True) -> Recorded | None:
        """Switch off and finish the file; it is left out where nothing was recorded. None where it was off.

        ``complete``: the run came to its end. None too, and a warning, where the recording failed on the way.
        """
        if self in _guests:
            return None
        recorder, self._recorder = self._recorder, None
        file, self._file = self._file, None
        atexit.unregister(self.close)
        if recorder is None or recorder.forked:
            return None
        try:
            return self._finish(recorder, file, complete=complete)
        except CbprofError as error:
            self._fail(error)
            return None

    def _fail(self, error: CbprofError) -> None:
        """The recording ends here; the program goes on."""
        self.failure = error
        _log.warning("%s", error)

    def _finish(self, recorder: Recorder, file: TraceFile | None, *, complete: bool) -> Recorded:
        try:
            recorded = recorder.close()
        except BaseException:
            if file is not None:
                with suppress(CbprofError):  # the disk may be why
                    file.close(Meta.parse(self.meta | {"complete": False}))
            raise
        if file is not None and not recorded.spans:
            file.abandon()
        elif file is not None:
            file.close(Meta.parse(self.meta | self._final(recorder, recorded, complete=complete)))
        return recorded

    def _open(self, placement: Placement) -> SpanSink:
        """Where the spans of one recording go."""
        self.meta = placement.facts | self.meta
        if self.path is not None:
            self.path = placement.path(self.path)
            return self._begin_file(self.path)
        assert self._sink is not None
        return self._sink

    def _begin_file(self, path: Path) -> TraceWriter:
        """The file, under a name with this process in it where another one has the name, or made the tracer."""
        meta = Meta.parse(self.meta)
        if os.getpid() == self._made_in:
            try:
                return TraceWriter(path, meta)
            except FileInUseError:
                pass
        self.path = with_infix(path, f"pid{os.getpid()}")
        _log.warning("another process writes %s: this one writes %s", path, self.path)
        return TraceWriter(self.path, meta)

    def _final(self, recorder: Recorder, recorded: Recorded, *, complete: bool) -> dict[str, Any]:
        """What is known of the recording when it is over."""
        clocks = [clock for clock in recorder.devices.clocks() if not isinstance(clock, NoClock)]
        emulated = clocks and all(isinstance(clock, BlockingClock) for clock in clocks)
        return {
            "evidence": self.meta.get("evidence", "emulated" if emulated else "cuda_events"),
            "complete": complete,
            "tokens": recorded.tokens,
            "clock_error_ns": recorded.clock_error_ns,
            "device_error_ns": recorded.device_error_ns,
            "threads": [each.to_json() for each in recorded.threads],
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        self.close(complete=error is None)


class HostTracer(Tracer):
    """The tracer of ``cbprof record``. Every other tracer of the process is its guest: it feeds the host's recording.

    Guests are on while the host is on; their own ``start`` and ``close`` do nothing.
    """

    _has_switch = False

    @property
    def guests(self) -> list[Tracer]:
        return list(_guests)

    @property
    def recorded_guests(self) -> list[Tracer]:
        """Those with a phase in the recording under way, or in the last one."""
        return [guest for guest in _guests if guest._took_part]

    def host(self) -> None:
        """Make a guest of every tracer that is made from now on."""
        global _host  # noqa: PLW0603 - one for the process, as cbprof record is
        _host = self

    def leave(self) -> None:
        """In a process forked off: tracers that are made here are nobody's guests."""
        global _host  # noqa: PLW0603 - as above
        _host = None
        _guests.clear()

    def _fail(self, error: CbprofError) -> None:
        """The session notes it, for ``cbprof record`` to say."""
        raise error

    def step_begins(self, number: int) -> None:
        """A guest begins its step ``number``; called before its span is taken."""

    def start(self) -> Self:
        if not self.on:
            for guest in self.guests:
                guest._took_part = False
        super().start()
        for guest in self.guests:
            guest._recorder = self._recorder
        return self

    def close(self, *, complete: bool = True) -> Recorded | None:
        for guest in self.guests:
            guest._recorder = None
        return super().close(complete=complete)


_host: HostTracer | None = None
_guests: WeakSet[Tracer] = WeakSet()


def _current_stream() -> Any:
    """The stream that torch queues on, or None where there is none."""
    if not cuda_is_there():
        return None
    import torch

    return torch.cuda.current_stream()
