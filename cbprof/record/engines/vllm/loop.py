"""Where a thread of vLLM stands, and what its hooks share."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from cbprof.record.recorder import Recorder
from cbprof.record.spans import WORK, DeviceSpan
from cbprof.record.tracer import Tracer
from cbprof.trace import NONE, Kind, Lane

Method = Callable[..., Any]

STEP = "_cbprof_step"
"""The attribute by which a batch of vLLM's (``SchedulerOutput``, a future, an output) says which step it is: it
travels with the batch, also to the processes of the workers."""


def step_of(theirs: Any, default: int = NONE) -> int:
    """The step that an object of vLLM's was marked with."""
    step = getattr(theirs, STEP, default)
    return step if isinstance(step, int) else default


class Loop:
    """Where a thread stands.

    ``depth``: how many hooks enclose it. ``step``: the batch that is being prepared, launched and sampled; NONE for one
    without a token. ``tokens``: in that batch. ``turn``: the batch that the engine core scheduled last. ``sent``: the
    one that was sent to workers last. ``polled_ns``: since when it looks for requests; 0 once one has come. ``launch``:
    the open span of the forward pass, whose device work ends after sampling. ``launching``: the host is at it.
    ``awaiting``: it waits for a worker already. ``lane``: where the spans of this thread go, in the recording of
    ``recorder``.
    """

    __slots__ = (
        "awaiting",
        "depth",
        "executing",
        "lane",
        "launch",
        "launching",
        "polled_ns",
        "recorder",
        "sent",
        "step",
        "tokens",
        "turn",
    )

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.lane: Lane | None = None
        self.depth = 0
        self.step = self.turn = self.sent = NONE
        self.polled_ns = self.tokens = 0
        self.executing = self.awaiting = False
        self.launch: DeviceSpan | None = None
        self.launching = False

    def end_launch(self) -> None:
        """The host has launched the forward pass, if it was at it."""
        if self.launching and self.launch is not None:
            self.launch.__exit__(None)
        self.launching = False

    def end_compute(self) -> None:
        """The device's part of the step ends with what has been queued by now."""
        launch, self.launch = self.launch, None
        if launch is not None:
            launch.finish()


class _Loops(threading.local):
    """The loop of each thread; looking it up is what costs."""

    def __init__(self) -> None:
        self.loop = Loop()


class Process:
    """One process of vLLM: its tracer, and what its hooks have learned. ``step_begins`` is told the number of each step
    before its first span, ``failed`` the name of a method whose hook failed, and why.

    ``without_graph``: the least and the most tokens of a step that ran without a graph, (0, 0) where none did.
    ``role``: ``engine core``, ``worker 0`` or ``front end``; empty until it is known. ``config``: vLLM's own
    (``VllmConfig``). ``graphs``: steps by how they ran: ``full``, ``piecewise`` or ``none``, for no graph.
    """

    def __init__(
        self, tracer: Tracer, step_begins: Callable[[int], None], failed: Callable[[str, Exception], None]
    ) -> None:
        self.tracer = tracer
        self.step_begins = step_begins
        self.failed = failed
        self._role = ""
        self._pid = os.getpid()
        self.config: Any = None
        self.graphs: Counter[str] = Counter()
        self.without_graph = (0, 0)
        self.totals: Counter[str] = Counter()
        self.steps = 0
        self.threads = _Loops()

    @property
    def loop(self) -> Loop:
        """That of the calling thread."""
        return self.threads.loop

    def forget_threads(self) -> None:
        """In a process that was forked off: nothing is under way here."""
        self.threads = _Loops()

    @property
    def role(self) -> str:
        """A process that was forked off is not yet what the one is that it comes from."""
        return self._role if self._pid == os.getpid() else ""

    @role.setter
    def role(self, role: str) -> None:
        self._role, self._pid = role, os.getpid()

    def lane(self, name: str) -> Loop:
        """The loop of this thread; once a recording, its lane gets the name. The first name tells what this process is,
        where nobody saw its engine being made."""
        loop = self.threads.loop
        recorder = self.tracer.recorder
        if loop.recorder is not recorder:
            loop.recorder = recorder
            self.role = self.role or name
            self.tracer.name_lane(name)
            loop.lane = None if recorder is None else recorder.lanes.current()
        return loop

    def note(
        self,
        loop: Loop,
        kind: Kind,
        name: str,
        step: int,
        start_ns: int,
        end_ns: int,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """A span of the thread of ``loop``, if anybody records."""
        recorder = self.tracer.recorder
        if recorder is not None:
            lane = loop.lane if loop.recorder is recorder else None
            recorder.note_timed(lane or recorder.lanes.current(), kind, name, step, start_ns, end_ns, facts)


class Guard:
    """Of one wrapped method: whether its hook is in use. See :func:`cbprof.record.wrapping.guarded`, of which the hooks
    of every step are the quick form: they touch no object of vLLM's but in a ``try`` that ends here."""

    __slots__ = ("_name", "_process", "armed")

    def __init__(self, process: Process, original: Method) -> None:
        self._process = process
        self._name = getattr(original, "__qualname__", repr(original))
        self.armed = True

    def failed(self, error: Exception) -> None:
        """Take it out of use, and say so."""
        if self.armed:
            self.armed = False
            self._process.failed(self._name, error)


def timed(process: Process, name: str, original: Method, *, while_executing: bool = False, kind: Kind = WORK) -> Method:
    """``original``, each call a span of the step that this thread works on. It looks at nothing of vLLM's, so that
    nothing can fail. ``while_executing``: only inside ``execute_model``."""
    now = process.tracer.now

    def call(*args: Any, **kwargs: Any) -> Any:
        loop = process.threads.loop
        if while_executing and not loop.executing:
            return original(*args, **kwargs)
        start_ns = now()
        try:
            return original(*args, **kwargs)
        finally:
            process.note(loop, kind, name, loop.step, start_ns, now())

    return call
