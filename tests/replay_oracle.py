"""The two loops with given costs: a trace of either as a recorder would take it, and a slow simulator as an oracle.

The simulator knows nothing of cbprof.analysis. It steps through time nanosecond by nanosecond: a host that works
through a list of actions, and three streams, each of which starts its next operation when what it depends on is over.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st

from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, RequestEvent, Trace, TraceBuilder

STREAMS = ("h2d", "compute", "d2h")
KINDS = {"h2d": Kind.GPU_H2D, "compute": Kind.GPU_COMPUTE, "d2h": Kind.GPU_D2H}
LAUNCHES = {"h2d": "h2d", "launch": "compute", "fetch": "d2h"}
"""Host phases that queue work, and the stream that they queue it on."""


class Costs(NamedTuple):
    """Nanoseconds of one batch: host phases, then device work. A copy of 0 ns does not exist."""

    schedule: int = 2
    prepare: int = 3
    h2d_call: int = 1
    launch: int = 1
    fetch: int = 1
    update: int = 2
    h2d: int = 2
    compute: int = 20
    d2h: int = 1

    def before(self) -> list[tuple[str, int]]:
        """The host's phases up to the wait."""
        phases = [("schedule", self.schedule), ("prepare", self.prepare)]
        phases += [("h2d", self.h2d_call)] if self.h2d else []
        phases += [("launch", self.launch)]
        return phases + ([("fetch", self.fetch)] if self.d2h else [])

    def device(self, stream: str) -> int:
        return int(getattr(self, stream))


costs = st.builds(
    Costs,
    *[st.integers(1, 6) for _ in range(6)],
    h2d=st.integers(0, 4),
    compute=st.integers(1, 25),
    d2h=st.integers(0, 4),
)


class Span(NamedTuple):
    """A piece of the run: of the host (``stream`` empty) or of a stream."""

    name: str
    step: int
    start: int
    end: int
    stream: str = ""


class Simulation:
    """One run of the loop through ``slots`` slots: 1 is sync, 2 async."""

    def __init__(self, steps: list[Costs], slots: int) -> None:
        self.steps = steps
        self.slots = slots
        self.time = 0
        self.spans: list[Span] = []
        self.actions = deque(self._actions())
        self.doing: Span | None = None
        self.queues: dict[str, deque[int]] = {stream: deque() for stream in STREAMS}
        self.running: dict[str, Span] = {}
        self.done: set[tuple[str, int]] = set()

    def run(self) -> list[Span]:
        while self.actions or self.doing:
            while any((self._operation_ends(), self._operation_starts(), self._host_ends(), self._host_starts())):
                pass
            self.time += 1
        return self.spans

    def _operation_ends(self) -> bool:
        over = [stream for stream, span in self.running.items() if span.end == self.time]
        for stream in over:
            self.spans.append(self.running.pop(stream))
            self.done.add((stream, self.spans[-1].step))
        return bool(over)

    def _operation_starts(self) -> bool:
        for stream, queue in self.queues.items():
            if queue and stream not in self.running and self._ready(stream, queue[0]):
                step = queue.popleft()
                self.running[stream] = Span(
                    stream, step, self.time, self.time + self.steps[step].device(stream), stream
                )
                return True
        return False

    def _host_ends(self) -> bool:
        if self.doing is None or self.doing.end > self.time:
            return False
        if self.doing.name in LAUNCHES:
            self.queues[LAUNCHES[self.doing.name]].append(self.doing.step)
        self.spans.append(self.doing)
        self.doing = None
        return True

    def _host_starts(self) -> bool:
        if self.doing is not None or not self.actions:
            return False
        name, step, length = self.actions[0]
        if name == "wait":
            if self._results(step) not in self.done:
                return False
        else:
            self.doing = Span(name, step, self.time, self.time + length)
        self.actions.popleft()
        return True

    def _actions(self) -> list[tuple[str, int, int]]:
        """(phase, batch, length) of everything that the host does, waits of unknown length included."""
        actions: list[tuple[str, int, int]] = []
        for launched in range(len(self.steps) + self.slots - 1):
            if launched < len(self.steps):
                actions += [(name, launched, length) for name, length in self.steps[launched].before()]
            landed = launched + 1 - self.slots
            if landed >= 0:
                actions += [("wait", landed, 0), ("update", landed, self.steps[landed].update)]
        return actions

    def _ready(self, stream: str, step: int) -> bool:
        if stream == "compute":
            return not self.steps[step].h2d or ("h2d", step) in self.done
        return stream == "h2d" or ("compute", step) in self.done

    def _results(self, step: int) -> tuple[str, int]:
        return ("d2h" if self.steps[step].d2h else "compute"), step


def simulate(steps: list[Costs], slots: int) -> list[Span]:
    """Every span of the run but the waits, in no particular order."""
    return Simulation(steps, slots).run()


def trace_of_run(steps: list[Costs], slots: int, **meta: Any) -> Trace:
    """The run as a recorder takes it: links, slots, waits, batch facts, and a request's moments."""
    spans = simulate(steps, slots)
    builder = TraceBuilder()
    lanes = {"": builder.lane(Lane("engine"))} | {name: builder.lane(Lane(name, 0)) for name in STREAMS}
    stream_of = {**LAUNCHES, **{stream: stream for stream in STREAMS}}
    results: dict[int, int] = {}
    for span in spans:
        on_device = bool(span.stream)
        link = 3 * span.step + STREAMS.index(stream_of[span.name]) if span.name in stream_of else -1
        builder.span(
            lanes[span.stream],
            KINDS[span.stream] if on_device else Kind.CPU_WORK,
            span.name,
            span.start,
            span.end - span.start,
            step=span.step,
            slot=-1 if span.name == "schedule" else span.step % slots,
            link=link,
        )
        if on_device:
            results[span.step] = max(results.get(span.step, 0), span.end)
    busy = sorted((span.start, span.end) for span in spans if not span.stream)
    gaps = {after[0]: before[1] for before, after in pairwise(busy)}
    for span in spans:
        if span.name == "update":
            since = gaps.get(span.start, span.start)
            builder.span(
                lanes[""], Kind.CPU_WAIT, "wait", since, span.start - since, step=span.step, slot=span.step % slots
            )
            builder.request(RequestEvent.TOKEN, 0, span.end)
    for step in range(len(steps)):
        builder.batch(step, tokens=1, requests=1, context=step, phase="decode")
    builder.request(RequestEvent.ARRIVE, 0, 0)
    mode = "sync" if slots == 1 else "async"
    count = len(steps)
    between = [
        {"event": "inputs_ready", "recorded_on": "h2d", "waiter": "compute", "steps_before": 0, "count": count},
        {"event": "outputs_ready", "recorded_on": "compute", "waiter": "d2h", "steps_before": 0, "count": count},
    ]
    host = {"event": "done", "recorded_on": "d2h", "waiter": "host", "steps_before": 0, "count": count}
    facts = {
        "mode": mode,
        "evidence": "emulated",
        "complete": True,
        "clock_error_ns": 2,
        "device_error_ns": 1,
        "edges": [host] if mode == "sync" else [*between, host],
    }
    return builder.build(Meta.parse({**facts, **meta}))
