"""A few steps, recorded into memory."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from cbprof.meta import Meta
from cbprof.record.recorder import Recorded
from cbprof.trace import Trace, TraceBuilder


class Tracing(Protocol):
    """Either of our tracers: the one for loops like the engine's, or the one for anybody's streams."""

    def close(self) -> Recorded | None: ...


T = TypeVar("T", bound=Tracing)


class Recording(Generic[T]):
    """What happens inside ``with`` is recorded by ``tracer`` into ``builder``; :attr:`trace` is there afterwards.

    ::

        recording = lab.recording()
        with recording as hooks:
            with hooks.phase("launch", step, slot=0, stream=streams.compute):
                ...
        recording.trace
    """

    def __init__(self, builder: TraceBuilder, tracer: T, meta: Meta) -> None:
        self._builder = builder
        self._tracer = tracer
        self._meta = meta
        self._trace: Trace | None = None

    def __enter__(self) -> T:
        return self._tracer

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        recorded = self._tracer.close()
        assert recorded is not None, "closed twice"
        self._trace = self._builder.build(
            self._meta.changed(
                complete=error is None,
                tokens=recorded.tokens,
                clock_error_ns=recorded.clock_error_ns,
                device_error_ns=recorded.device_error_ns,
                edges=tuple(recorded.edges),
            )
        )

    @property
    def trace(self) -> Trace:
        """What was recorded. Raises :class:`RuntimeError` while it is still going on."""
        if self._trace is None:
            raise RuntimeError("the recording is not over")
        return self._trace
