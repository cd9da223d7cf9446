"""What rocprofiler-sdk records, whichever file holds it: work of agents, calls of the host, and ranges of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cbprof.formats.columns import Index, assemble
from cbprof.formats.cuda_names import is_collective, is_wait
from cbprof.formats.records.identity import PROCESS_SHIFT, Lanes, blocks, extent, name_processes
from cbprof.formats.records.rows import ABSENT, Findings, Rows, absent, is_span
from cbprof.formats.rocm.agents import Agent, are_gpus, device_numbers, models
from cbprof.meta import Meta
from cbprof.trace import Int8, Int32, Int64, Kind, Trace

ID_BITS = (1 << PROCESS_SHIFT) - 1

UNNAMED = "(unnamed)"

MARK = "roctxMark"
"""Begins the name of the call that marks a moment: no range, though the call takes a few nanoseconds."""


@dataclass(slots=True)
class Activity:
    """All records of a file. Until :meth:`trace`, the ``device`` of a row is the key of its agent in ``agents``.

    ``handles`` numbers agents for files that know them by (process, handle).
    """

    names: Index[str] = field(default_factory=Index)
    handles: Index[tuple[int, int]] = field(default_factory=Index)
    agents: dict[int, Agent] = field(default_factory=dict)
    thread_names: dict[int, str] = field(default_factory=dict)
    found: Findings = field(default_factory=Findings)
    _on_device: list[Rows] = field(default_factory=list)
    _on_host: list[Rows] = field(default_factory=list)

    def add_kernels(
        self,
        *,
        start: Int64,
        end: Int64,
        name_id: Int32,
        process: Int64,
        correlation: Int64,
        agent: Int64,
        stream: Int64,
    ) -> None:
        kind = self._kinds(name_id, lambda name: Kind.GPU_COMM if is_collective(name) else Kind.GPU_COMPUTE)
        self._add_to_device(start, end, kind, name_id, process, correlation, agent, stream)

    def add_copies(
        self,
        *,
        start: Int64,
        end: Int64,
        name_id: Int32,
        process: Int64,
        correlation: Int64,
        source: Int64,
        target: Int64,
        stream: Int64,
    ) -> None:
        """Copies count for the GPU that they go to, or else come from. Those within the host are no work of a GPU."""
        from_gpu, to_gpu = are_gpus(self.agents, source), are_gpus(self.agents, target)
        kind = np.where(from_gpu & to_gpu, Kind.GPU_COPY, np.where(to_gpu, Kind.GPU_H2D, Kind.GPU_D2H)).astype(np.int8)
        agent = np.where(to_gpu, target, source)
        columns = (start, end, kind, name_id, process, correlation, agent, stream)
        self._add_to_device(*(column[from_gpu | to_gpu] for column in columns))  # type: ignore[arg-type]

    def add_calls(
        self,
        *,
        start: Int64,
        end: Int64,
        name_id: Int32,
        process: Int64,
        correlation: Int64,
        thread: Int64,
        is_range: npt.NDArray[np.bool_],
    ) -> None:
        """Calls and other regions of the host. ``is_range``: which of them are ranges of ROCTx."""
        kind = self._kinds(name_id, lambda name: Kind.CPU_WAIT if is_wait(name) else Kind.CPU_WORK)
        kind = np.where(is_range, np.int8(Kind.CPU_ANNOTATION), kind)
        nowhere = absent(len(start))
        whose = np.where(
            (process == ABSENT) | (thread == ABSENT), ABSENT, process << PROCESS_SHIFT | (thread & ID_BITS)
        )
        of_call = np.where(is_range, ABSENT, correlation)
        rows = Rows(start, end, kind, name_id, process, of_call, nowhere, nowhere, nowhere, whose)
        self._on_host.append(self._sound(rows))

    def trace(self, format_: str, extra: Mapping[str, Any]) -> Trace:
        """The trace of all these records."""
        named = name_processes([*self._on_device, *self._on_host], self.found)
        on_device, on_host = named[: len(self._on_device)], named[len(self._on_device) :]
        keys = np.unique(np.concatenate([absent(0), *(each.device for each in on_device)]))
        devices = device_numbers(self.agents, keys.tolist(), self.found)
        number = np.array([devices[key] for key in keys.tolist()], dtype=np.int64)
        on_device = [replace(each, device=number[np.searchsorted(keys, each.device)]) for each in on_device]
        self._note_missing()
        rows = [*on_device, *on_host]
        lanes = Lanes(rows, {}, self.thread_names)
        spans = blocks(rows, lanes)
        by_device = models(self.agents, devices)
        meta = Meta(
            evidence="cupti",
            format=format_,
            device=", ".join(dict.fromkeys(by_device.values())) or None,
            reliable=self.found.reliable,
            warnings=tuple(self.found.warnings),
            health=self.found.counts,
            extent_ns=extent(rows),
            extra={**extra, **({"device_models": by_device} if by_device else {})},
        )
        return assemble(spans, self.names.things(), lanes.index.things(), meta)

    def _add_to_device(
        self,
        start: Int64,
        end: Int64,
        kind: Int8,
        name_id: Int32,
        process: Int64,
        correlation: Int64,
        agent: Int64,
        stream: Int64,
    ) -> None:
        known = are_gpus(self.agents, agent) & ((start != 0) | (end != 0))  # 0 and 0: no time could be collected
        self.found.count("n_dropped", int(len(known) - known.sum()))
        nowhere = absent(len(start))
        stream = np.where(stream == ABSENT, 0, stream)
        rows = Rows(start, end, kind, name_id, process, correlation, agent, nowhere, stream, nowhere)
        self._on_device.append(self._sound(rows.select(known)))

    def _sound(self, rows: Rows) -> Rows:
        kept = is_span(rows.start, rows.end)
        self.found.count("n_dropped", int(len(kept) - kept.sum()))
        return rows.select(kept)

    def _kinds(self, name_id: Int32, kind_of: Callable[[str], Kind]) -> Int8:
        """The kind of each row, by its name."""
        names = self.names.things()
        met, which = np.unique(name_id, return_inverse=True)
        return np.array([kind_of(names[each]) for each in met.tolist()], dtype=np.int8)[which]

    def _note_missing(self) -> None:
        """Warn of records that the figures need and the file lacks, and say how to take them."""
        if not any(len(each) for each in self._on_device):
            self.found.warnings.append("the file holds no work of a GPU; record with `rocprofv3 --runtime-trace`")
        elif not any((each.correlation != ABSENT).any() for each in self._on_host):
            self.found.warnings.append(
                "the file holds no calls of HIP: what launched the GPU's work is unknown; "
                "record with `rocprofv3 --runtime-trace`"
            )
