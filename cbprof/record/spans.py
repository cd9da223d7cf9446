"""Spans while they are open, for :class:`~cbprof.record.tracer.Tracer`. Enter and exit are what a phase costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar, Token
from typing import Any, Protocol

from cbprof.errors import UsageError
from cbprof.record.drain import DeviceLane, HostSpan, LaunchSpan
from cbprof.record.recorder import Recorder
from cbprof.trace import NONE, Kind

CAPTURE = "capture"
"""The phase in which an engine captures a graph, while nobody may query the device."""

WORK, WAIT = Kind.CPU_WORK, Kind.CPU_WAIT  # looking a member up in its class costs as much as a stamp

Mark = Callable[[str], AbstractContextManager[object]]
"""Opens a range of this name in another profiler."""


class OpenSpan(Protocol):
    """What ``with tracer.cpu(...) as span`` gives: ``step``, ``slot`` and ``facts`` can be set until the block ends."""

    step: int
    slot: int
    facts: Mapping[str, Any]

    def hold(self) -> None:
        """The device work goes on behind the block: :meth:`finish` ends it, and the span is recorded then. A phase of
        the host ends with its block in any case."""

    def finish(self) -> None:
        """The device work of the block ends here, though the block goes on. Nothing happens in a phase of the host."""


class _Off:
    """Stands for every span while the tracer is off."""

    __slots__ = ("facts", "slot", "step")

    step: int
    slot: int
    facts: Mapping[str, Any]

    def hold(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def __enter__(self) -> OpenSpan:
        return self

    def __exit__(self, *error: object) -> None:
        pass


OFF = _Off()


class Span(HostSpan):
    """A phase of the host."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder, kind: Kind, name: str, step: int, slot: int) -> None:
        self._recorder = recorder
        self.kind = kind
        self.name = name
        self.step = step
        self.slot = slot

    def hold(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def __enter__(self) -> OpenSpan:
        self.start_ns = self._recorder.now()
        return self

    def __exit__(self, *error: object) -> None:
        self.end_ns = self._recorder.now()
        self._recorder.note_span(self)


class StepSpan(Span):
    """A whole step: the phases inside take their step from the context variable."""

    __slots__ = ("_context", "_token")

    def __init__(self, recorder: Recorder, number: int, context: ContextVar[int]) -> None:
        super().__init__(recorder, WORK, "step", number, NONE)
        self._context = context
        self._token: Token[int] | None = None

    def __enter__(self) -> OpenSpan:
        self._token = self._context.set(self.step)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._token is not None:
            self._context.reset(self._token)


class CaptureSpan(Span):
    """The capture of a graph: no clock touches its device meanwhile."""

    __slots__ = ("_paused",)

    def __init__(self, recorder: Recorder, step: int, slot: int) -> None:
        super().__init__(recorder, WORK, CAPTURE, step, slot)
        self._paused = ExitStack()

    def __enter__(self) -> OpenSpan:
        span = super().__enter__()
        for clock in self._recorder.devices.clocks():
            self._paused.enter_context(clock.paused())
        return span

    def __exit__(self, *error: object) -> None:
        self._paused.close()
        super().__exit__(*error)


class DeviceSpan(LaunchSpan):
    """A phase of the host, and the work that it queues on a stream.

    Where the host plays the device, it counts as waiting for it.
    """

    __slots__ = ("_finished", "_held", "_left", "_place", "_recorder")

    def __init__(self, recorder: Recorder, place: DeviceLane, name: str, step: int, slot: int, stream: Any) -> None:
        self._recorder = recorder
        self._place = place
        self._finished = self._held = self._left = False
        self.kind = WAIT if place.device.blocks else WORK
        self.name = name
        self.step = step
        self.slot = slot
        self.stream = stream

    def hold(self) -> None:
        self._held = not self._place.device.blocks  # a host that plays the device is done when it leaves

    def finish(self) -> None:
        if not self._finished:
            self.handle = self._place.device.clock.end(self.stream, self.handle)
            self._finished = True
            if self._left:
                self._recorder.note_launch(self, self._place)

    def __enter__(self) -> OpenSpan:
        self.start_ns = self._recorder.now()
        self.handle = self._place.device.clock.begin(self.stream)
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        if error is not None and not self._finished:
            self.handle, self._finished = None, True  # nobody knows how much of the work was queued
        elif not self._held:
            self.finish()
        self.end_ns = self._recorder.now()
        self._left = True
        if self._finished:
            self._recorder.note_launch(self, self._place)


class MarkedSpan:
    """A span that other profilers see as well."""

    __slots__ = ("_marks", "_open", "_span")

    def __init__(self, span: Span | DeviceSpan, marks: tuple[Mark, ...]) -> None:
        self._span = span
        self._marks = marks
        self._open = ExitStack()

    def __enter__(self) -> OpenSpan:
        for mark in self._marks:
            self._open.enter_context(mark(self._span.name))
        return self._span.__enter__()

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        self._span.__exit__(error, *details)
        self._open.close()


def marks(*, nvtx: bool, record_function: bool) -> tuple[Mark, ...] | None:
    """What opens ranges in the profilers asked for; None for none. Raises :class:`UsageError` where torch cannot."""
    if not (nvtx or record_function):
        return None
    import torch

    if nvtx and not torch.cuda.is_available():
        raise UsageError("nvtx=True: torch sees no CUDA device, and its CPU build has no NVTX; leave it out")
    wanted: tuple[tuple[bool, Mark], ...] = ((nvtx, torch.cuda.nvtx.range), (record_function, _record_function))
    return tuple(mark for chosen, mark in wanted if chosen)


def _record_function(name: str) -> AbstractContextManager[object]:
    from torch.profiler import record_function

    return record_function(name)
