"""Where a thread of vLLM stands, and what its hooks share."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from cbprof.record.recorder import Recorder
from cbprof.record.spans import OpenSpan
from cbprof.record.tracer import Tracer
from cbprof.trace import NONE

STEP = "_cbprof_step"
"""The attribute by which a batch of vLLM's (``SchedulerOutput``, a future, an output) says which step it is: it
travels with the batch, also to the processes of the workers."""


def step_of(theirs: Any, default: int = NONE) -> int:
    """The step that an object of vLLM's was marked with."""
    step = getattr(theirs, STEP, default)
    return step if isinstance(step, int) else default


class Loop(threading.local):
    """Where this thread stands.

    ``depth``: how many hooks enclose it. ``step``: the batch that is being prepared, launched and sampled; NONE for one
    without a token. ``turn``: the batch that the engine core scheduled last. ``sent``: the one that it sent to workers
    last. ``launch``, ``compute``: the open spans of the forward pass, on the host and on the device.
    """

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.depth = 0
        self.step = self.turn = self.sent = NONE
        self.iterating = self.executing = self.awaiting = False
        self.launch: AbstractContextManager[OpenSpan] | None = None
        self.compute: OpenSpan | None = None
        self.starved: AbstractContextManager[OpenSpan] | None = None

    def close_launch(self) -> None:
        """The host has launched the forward pass, if it was at it."""
        launch, self.launch = self.launch, None
        if launch is not None:
            launch.__exit__(None, None, None)

    def end_compute(self) -> None:
        """The device's part of the step ends with what has been queued by now."""
        compute, self.compute = self.compute, None
        if compute is not None:
            compute.finish()

    def close_starved(self) -> None:
        """There is a request again, if there was none."""
        starved, self.starved = self.starved, None
        if starved is not None:
            starved.__exit__(None, None, None)


class Process:
    """One process of vLLM: its tracer, and what its hooks have learned. ``step_begins`` is told the number of each step
    before its first span.

    ``role``: ``engine core``, ``worker 0`` or ``front end``; empty until it is known. ``config``: vLLM's own
    (``VllmConfig``). ``graphs``: steps by how they ran: ``full``, ``piecewise`` or ``none``, for no graph.
    """

    def __init__(self, tracer: Tracer, step_begins: Callable[[int], None]) -> None:
        self.tracer = tracer
        self.step_begins = step_begins
        self._role = ""
        self._pid = os.getpid()
        self.config: Any = None
        self.graphs: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.steps = 0
        self.loop = Loop()

    @property
    def role(self) -> str:
        """A process that was forked off is not yet what the one is that it comes from."""
        return self._role if self._pid == os.getpid() else ""

    @role.setter
    def role(self, role: str) -> None:
        self._role, self._pid = role, os.getpid()

    def lane(self, name: str) -> Loop:
        """The loop of this thread; once a recording, its lane gets the name."""
        loop = self.loop
        if loop.recorder is not self.tracer.recorder:
            loop.recorder = self.tracer.recorder
            self.tracer.name_lane(name)
        return loop
