"""A trace that becomes a file when there is something to write, under a name that no other process of the run has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from cbprof.engine.placement import Placement
from cbprof.formats import TraceWriter
from cbprof.formats.processes import PROCESS, numbered, part_of
from cbprof.meta import NOTHING_SAID, Meta
from cbprof.record.program.settings import Settings
from cbprof.record.program.status import claim
from cbprof.riders import Riders
from cbprof.trace import NONE, BatchPhase, Kind, Lane, RequestEvent


class LazyFile:
    """A :class:`~cbprof.trace.SpanSink` that becomes a file at its first span, and until then is nothing.

    The first of a run is the file asked for, ``NAME.json``, whichever process it comes from; then ``NAME.2.json``. Each
    of several ranks has a ``NAME`` of its own. ``meta`` begins it; ``begins`` is called when there is a file.
    ``part_facts``: what the file says at its beginning if this process records a part of what several do, with the
    process under :data:`PROCESS`; it is to be merged with those of the others.
    """

    def __init__(
        self,
        settings: Settings,
        begins: Callable[[], None] = lambda: None,
        meta: Meta = NOTHING_SAID,
        part_facts: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._settings = settings
        self._meta = meta
        self._part_facts = part_facts
        self._begins = begins
        self._writer: TraceWriter | None = None
        self._name: Path | None = None
        self.path: Path | None = None
        self.began_s: float | None = None
        self.has_device_spans = False

    @cached_property
    def _placement(self) -> Placement:
        """Looked up as late as this: a program may set its rank itself."""
        return Placement.or_alone(os.environ)

    @property
    def name(self) -> Path:
        """What the file is called, or would be if it had a span. Nobody else's from now on."""
        if self._name is None and (process := self._part_facts().get(PROCESS)):
            self._name = numbered(part_of(Path(self._settings.out), process["pid"]), process["recording"])
        elif self._name is None:
            path = self._placement.path(Path(self._settings.out))
            self._name = numbered(path, claim(self._settings.folder, path.name))
        return self._name

    @property
    def part(self) -> str:
        return "" if self._writer is None else str(self._writer.part)

    def lane(self, lane: Lane) -> int:
        self.has_device_spans |= lane.on_device
        return self._file().lane(lane)

    def span(
        self,
        lane_id: int,
        kind: Kind,
        name: str,
        start_ns: int,
        dur_ns: int,
        *,
        step: int = NONE,
        slot: int = NONE,
        link: int = NONE,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._file().span(lane_id, kind, name, start_ns, dur_ns, step=step, slot=slot, link=link, extra=extra)

    def batch(
        self, step: int, *, tokens: int, requests: int, context: int, phase: BatchPhase, riders: Riders | None = None
    ) -> None:
        self._file().batch(step, tokens=tokens, requests=requests, context=context, phase=phase, riders=riders)

    def request(self, event: RequestEvent, request: int, time_ns: int) -> None:
        self._file().request(event, request, time_ns)

    def tokens(self, requests: Sequence[int], time_ns: int) -> None:
        self._file().tokens(requests, time_ns)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def disown(self) -> None:
        if self._writer is not None:
            self._writer.disown()

    def close(self, meta: Meta) -> None:
        if self._writer is not None:
            self._writer.close(meta)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer, self.path = None, None

    def _file(self) -> TraceWriter:
        if self._writer is None:
            said = self._meta.changed(**self._placement.facts)
            if facts := self._part_facts():
                said = Meta.parse(self._meta.to_json() | dict(facts))
            self._writer = TraceWriter(self.name, said)
            self.path, self.began_s = self.name, time.monotonic()
            self._begins()
        return self._writer
