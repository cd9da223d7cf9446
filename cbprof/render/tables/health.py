"""What `cbprof doctor` shows: everything that was looked at in a file, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cbprof.analysis.accounting.steps import step_source
from cbprof.analysis.accounting.window import extent
from cbprof.analysis.profiles.health import Health
from cbprof.names import plain
from cbprof.numbers import count, duration
from cbprof.render.evidence import in_short, step_source_in_short
from cbprof.render.panel import LABEL, framed
from cbprof.render.sheet import Sheet
from cbprof.trace import Trace

ODD = "yellow"


class Row(NamedTuple):
    """One thing that was looked at. ``odd``: it is not as it should be."""

    label: str
    value: str
    odd: bool = False


# What is counted, in the order in which it is shown, and whether more than 0 is odd.
EVENTS: Mapping[str, tuple[str, bool]] = {
    "n_events": ("events in the file", False),
    "n_dropped": ("events without usable times", True),
    "n_damaged": ("places that cannot be read", True),
    "n_unsorted": ("device events out of order in the file", False),
    "n_gpu_events": ("device events", False),
    "n_streams": ("streams", False),
    "n_functions": ("spans of Python functions", False),
    "n_duplicates": ("device events that occur twice", True),
    "n_zero_duration": ("device events of no duration", False),
    "same_stream_overlaps": ("device events that overlap on one stream", False),
    "n_runaway": ("durations that ran away", True),
}
LAUNCHES: Mapping[str, tuple[str, bool]] = {
    "n_gpu_without_launch": ("device events whose launch is not recorded", False),
    "n_negative_launch_delay": ("device events that start before their launch", True),
    "n_early_returns": ("waits that return before the work has ended", True),
    "n_lost_launches": ("plain launches whose device event is lost", True),
    "n_shared_launches": ("plain launches of several kernels", True),
    "n_launches_without_gpu_events": ("launches without a device event", False),
    "n_graph_launches": ("graph launches", False),
    "n_graph_launches_without_gpu_events": ("graph launches whose kernels are not recorded", True),
    "n_missing_stretches": ("stretches in which records are missing", True),
    "n_overhead": ("spans of the profiler's own overhead", False),
}


def health_table(health: Health, *, title: str | None = None) -> RenderableType:
    """The whole examination of one trace."""
    trace = health.trace
    parts: list[RenderableType] = [_rows(_file(trace, health)), "", _rows(_counts(health, EVENTS))]
    parts += ["", _rows(_counts(health, LAUNCHES)), ""]
    parts += [Text(f"! {plain(warning)}", style=ODD) for warning in health.warnings]
    parts.append(Text(_conclusion(health), style="" if health.reliable else f"bold {ODD}"))
    return framed(Group(*parts), [title], None)


def health_sheet(health: Health, *, title: str = "") -> Sheet:
    """The same as one table, with the warnings as notes."""
    rows = [*_file(health.trace, health), *_counts(health, EVENTS), *_counts(health, LAUNCHES)]
    cells = [(f"! {row.label}" if row.odd else row.label, row.value) for row in rows]
    return Sheet(("", "value"), cells, title, (*health.warnings, _conclusion(health)))


def _conclusion(health: Health) -> str:
    if not health.reliable:
        return "The figures of this trace should not be trusted."
    if not health.trace.devices:
        nothing = "No GPU work was recorded: there are no figures of a GPU to trust."
        return nothing if len(health.trace) else "The trace is empty."
    if not health.launches_known:
        return "When the GPU was idle can be relied on; what it waited for is not, or not always, in this trace."
    return "The figures of this trace can be trusted."


def _file(trace: Trace, health: Health) -> Iterator[Row]:
    meta, whole, source = trace.meta, extent(trace), step_source(trace)
    yield Row("format", plain(meta.format))
    yield Row("evidence", plain(in_short(trace.evidence, meta.device, ran=bool(trace.devices))))
    yield Row("complete", "yes" if trace.complete else "no", odd=not trace.complete)
    yield Row("steps known by", plain(step_source_in_short(source)) if source else "nothing: there are none")
    yield Row("device", plain(meta.device or "unknown"))
    if meta.rank is not None:
        yield Row("rank", f"{meta.rank} of {'an unknown number' if meta.world_size is None else meta.world_size}")
    if meta.base_time_ns is not None:
        yield Row("time 0, in ns since 1970", str(meta.base_time_ns))
    if whole is not None:
        yield Row("recorded", duration(whole.length_ns))
    if health.counts.get("overhead_ns"):
        yield Row("of that the profiler's overhead", duration(health.counts["overhead_ns"]))


def _counts(health: Health, labels: Mapping[str, tuple[str, bool]]) -> Iterator[Row]:
    for key, (label, is_odd) in labels.items():
        if key in health.counts:
            number = int(health.counts[key])
            yield Row(label, count(number), odd=is_odd and number > 0)


def _rows(rows: Iterator[Row]) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(Text(row.label, ODD if row.odd else LABEL), Text(row.value, ODD if row.odd else ""))
    return table
