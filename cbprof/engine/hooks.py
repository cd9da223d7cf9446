"""What the engine tells a profiler: its phases and waits, its batches and tokens, and which stream waits for which.

::

    with hooks.phase("launch", step, slot=slot.index, stream=streams.compute):
        slot.launch()

A phase is host work. With a stream, the same block also bounds the device work that it queues there. The ordering
events stand *between* phases: a start event recorded before a ``wait`` would count the waiting as work.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cbprof.engine.batch import Batch
    from cbprof.engine.devices.base import Event, Stream

_NO_PHASE: AbstractContextManager[None] = nullcontext()


class Hooks(Protocol):
    """What a profiler offers to an engine. Every call must be cheap and must not block."""

    def phase(
        self, name: str, step: int, *, slot: int = -1, stream: Stream | None = None
    ) -> AbstractContextManager[None]:
        """Host work on batch ``step``, and the device work that it queues on ``stream``, if any."""

    def wait(self, name: str, step: int, *, slot: int = -1) -> AbstractContextManager[None]:
        """A blocking wait of the host: the host is idle inside."""

    def batch(self, batch: Batch) -> None:
        """The facts of a batch, once it is scheduled."""

    def tokens(self, produced: Mapping[int, int], finished: list[int]) -> None:
        """After an update: the token of each request that got one, and the requests that finished with it."""

    def arrived(self, request: int, time_ns: int) -> None:
        """A request reached the engine at ``time_ns`` of the engine's clock."""

    def recorded(self, event: Event, stream: Stream, step: int) -> None:
        """``event`` was recorded on ``stream`` behind the work of batch ``step``."""

    def waited(self, event: Event, waiter: Stream | None, step: int) -> None:
        """``waiter`` (the host, if None) waits for ``event`` before it goes on with batch ``step``."""


class NoHooks:
    """Profiling switched off."""

    def phase(
        self, name: str, step: int, *, slot: int = -1, stream: Stream | None = None
    ) -> AbstractContextManager[None]:
        return _NO_PHASE

    def wait(self, name: str, step: int, *, slot: int = -1) -> AbstractContextManager[None]:
        return _NO_PHASE

    def batch(self, batch: Batch) -> None:
        pass

    def tokens(self, produced: Mapping[int, int], finished: list[int]) -> None:
        pass

    def arrived(self, request: int, time_ns: int) -> None:
        pass

    def recorded(self, event: Event, stream: Stream, step: int) -> None:
        pass

    def waited(self, event: Event, waiter: Stream | None, step: int) -> None:
        pass
