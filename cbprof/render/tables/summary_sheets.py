"""What a summary says, as sheets: the figures first, then what they consist of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cbprof.analysis.accounting.cause_tree import Branch
from cbprof.analysis.accounting.gaps import LONGEST_GAPS, GapEnd
from cbprof.analysis.accounting.segments import Segments
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.profiles.kernels import short_kernel
from cbprof.analysis.summary import Summary
from cbprof.analysis.verdict.advice import about
from cbprof.analysis.verdict.latency import Latency
from cbprof.analysis.verdict.shortened import SHORTENED_BY
from cbprof.names import plain, short
from cbprof.numbers import UNKNOWN, count, counted, duration, percent, rate, ratio, signed_duration
from cbprof.render.evidence import step_source_in_short
from cbprof.render.panel import HEADER, LABEL, WIDTH, framed
from cbprof.render.sheet import MOST_ROWS, Sheet
from cbprof.render.tables.device_work import cut_name, device_work
from cbprof.render.tables.summary import causes_in_words, lost_in_words, place_of, summary_table
from cbprof.trace import NONE

NOT_ENOUGH_RECORDED = "unknown, for too little of the host was recorded"

MOST_LISTED = 8

TREE_DEPTH = 3
"""Levels of the tree of causes that a table shows; its JSON has all."""


def key_figures(summary: Summary, title: str = "") -> Sheet:
    """The handful of figures that a pull request needs."""
    device = summary.most_idle
    idle_ns = device.idle_ns if device else None
    per_step = summary.wall_ns / summary.n_steps if summary.n_steps else None
    rows = [
        ("wall time", duration(summary.wall_ns or None)),
        ("tokens/s", rate(summary.tokens_per_s)),
        ("steps", count(summary.n_steps)),
        ("time per step", duration(per_step)),
        ("GPU idle", f"{percent(device.idle_pct)}, {duration(idle_ns)}" if device and idle_ns is not None else UNKNOWN),
        ("GPU idle, captures apart", percent(device.idle_pct_excl_one_off if device else None)),
        ("ceiling", duration(device.ceiling_ns if device else None)),
        ("speed-up bound", ratio(device.speedup_bound if device else None)),
    ]
    source = summary.step_source
    found = (f"Steps found by {step_source_in_short(source)}.",) if source and source.searched else ()
    if summary.lost:
        rows.append(("lost", lost_in_words(summary.lost)))
    notes = (summary.verdict.sentence, *shortened(summary), *found, *summary.warnings)
    notes += tuple(f"Next: {each.what} {each.command}" for each in about(summary.advice, title or None))
    return Sheet(("figure", "value"), rows, title, notes)


def causes(summary: Summary) -> Sheet:
    """What the device that waited longest waited for."""
    device = summary.most_idle
    found = causes_in_words(device.causes) if device else {}
    total = sum(found.values())
    rows = [(name, duration(ns), percent(100 * ns / total)) for name, ns in found.items()]
    return Sheet(("cause", "in all", "of idle"), rows, "the GPU waited for")


def cause_tree(device: DeviceSummary) -> Sheet:
    """What the host worked at while the device waited, from the outside in: the largest branches."""
    idle_ns = device.gaps.total_ns

    def sizes(branches: tuple[Branch, ...], depth: int) -> Iterator[int]:
        for each in branches if depth < TREE_DEPTH else ():
            yield each.ns
            yield from sizes(each.children, depth + 1)

    least_ns = min(sorted(sizes(device.causes.tree, 0))[-MOST_ROWS:], default=0)

    def rows(branches: tuple[Branch, ...], depth: int) -> Iterator[tuple[str, ...]]:
        for each in branches:
            if each.ns < least_ns:
                continue
            shares = (percent(100 * ns / idle_ns) for ns in (each.ns, each.own_ns))
            yield ("  " * depth + each.name, duration(each.ns), *shares)
            if depth + 1 < TREE_DEPTH:
                yield from rows(each.children, depth + 1)

    return Sheet(
        ("host phase", "in all", "of idle", "by itself"),
        list(rows(device.causes.tree, 0)),
        "the GPU waited for, from the outside in",
    )


def details(summary: Summary, *, all_rows: bool = False) -> Iterator[Sheet]:
    """Everything below the key figures, as far as it is known."""
    yield phases(summary).shortened(all_rows=all_rows)
    device = summary.most_idle
    if device is not None and device.profile is not None:
        yield device_work(device, all_rows=all_rows)
    if device is not None and device.idle_ns is not None:
        if any(branch.children for branch in device.causes.tree):
            yield cause_tree(device)
        yield overlap(device)
        yield gap_lengths(device)
        yield segments(device.over_time, "GPU idle over time", as_time=True, origin_ns=device.window.start_ns)
        if len(device.over_context):
            yield segments(device.over_context, "GPU idle over context length (tokens a request)")
    if summary.latency is not None:
        yield latency(summary.latency)
    if summary.one_offs:
        rows = [(once.name, count(once.n_spans), duration(once.total_ns)) for once in summary.one_offs]
        yield Sheet(("once", "spans", "in all"), rows, "once, in the whole trace")


def phases(summary: Summary) -> Sheet:
    """The host's time by phase; exposed is what the GPU had to wait through."""
    rows = [
        (
            f"{short(phase.name)} (waiting)" if phase.waiting else short(phase.name),
            duration(phase.total_ns),
            duration(phase.exposed_ns),
            duration(phase.p50_ns),
            duration(phase.p99_ns),
        )
        for phase in summary.phases
    ]
    parts = [phase.total_ns for phase in summary.phases]
    return Sheet(("phase", "in all", "exposed", "p50 a step", "p99 a step"), rows, "host phases", parts=parts)


def overlap(device: DeviceSummary) -> Sheet:
    """How well host and device overlap."""
    found = device.overlap
    lead = found.launch_lead
    rows = [
        ("overlap efficiency", percent(found.efficiency_pct)),
        ("launch lead, p1", signed_duration(lead.p1_ns) if lead else UNKNOWN),
        ("launch lead, p50", signed_duration(lead.p50_ns) if lead else UNKNOWN),
        ("steps without a lead", percent(lead.late_pct) if lead else UNKNOWN),
        ("steps that replay a graph", percent(found.graph_coverage_pct)),
    ]
    if found.without_graph and len(found.without_graph) < found.n_steps:
        rows.append(("steps that do not", _listed(found.without_graph)))
    return Sheet(("overlap", "value"), rows, "host and device")


def _ended_by(end: GapEnd) -> str:
    """``nvjet_tst_64x8, by cudaGraphLaunch on stream 7``."""
    if end.name is None:
        return ""
    kernel = cut_name(short_kernel(end.name))
    by = f"by {end.launch}" if end.launch else "launch unknown"
    return f"{kernel}, {by}, {end.stream}"


def _listed(numbers: Sequence[int]) -> str:
    """The first few: ``0, 1, 5 and 12 others``."""
    shown = ", ".join(map(str, numbers[:MOST_LISTED]))
    return shown if len(numbers) <= MOST_LISTED else f"{shown} and {len(numbers) - MOST_LISTED} others"


def gap_lengths(device: DeviceSummary) -> Sheet:
    """Percentiles of the gaps, and the longest of them with the step that ended each."""
    rows = [(f"p{p}", duration(device.gaps.percentile_ns(p)), "", "") for p in (50, 90, 99) if len(device.gaps)]
    longest = device.gaps.longest(LONGEST_GAPS)
    for row, (most, *_) in zip(longest.tolist(), device.causes.in_gaps(longest), strict=True):
        at = int(device.gaps.start[row]) - device.window.start_ns
        last = "the last" if device.gaps.ends_with[row] == NONE else "-"
        place = place_of(device.gaps, row) or last
        if device.profile is not None and (ended := _ended_by(device.ends.of_gap(row))):
            place = f"before {ended}" if place == "-" else f"{place}: {ended}"
        rows.append((place, duration(int(device.gaps.length_ns[row])), duration(at), cut_name(most.in_words)))
    return Sheet(("gap", "length", "begins at", "largest part"), rows, counted(len(device.gaps), "gap"))


def segments(found: Segments, title: str, *, as_time: bool = False, origin_ns: int = 0) -> Sheet:
    rows = [
        (
            f"{duration(part.start - origin_ns)} to {duration(part.end - origin_ns)}"
            if as_time
            else f"{part.start:,} to {part.end - 1:,}",
            count(part.n_steps),
            duration(part.idle_ns),
            percent(part.idle_pct),
        )
        for part in found
    ]
    return Sheet(("segment", "steps", "idle", "idle %"), rows, title)


def latency(found: Latency) -> Sheet:
    rows = [
        ("first token", count(found.n_first), UNKNOWN, duration(found.ttft_p50_ns), duration(found.ttft_p99_ns)),
        ("between tokens", "", duration(found.itl_mean_ns), duration(found.itl_p50_ns), duration(found.itl_p99_ns)),
    ]
    return Sheet(("latency", "requests", "mean", "p50", "p99"), rows, "latency of requests")


def shortened(summary: Summary) -> tuple[str, ...]:
    """What a tenth less of each side could bring, in words; of the time that is recorded whole."""
    verdict, device = summary.verdict, summary.most_idle
    if verdict.shortened is None or device is None:
        return ()
    window_ns = device.window.length_ns - device.missing_ns
    return tuple(
        f"{SHORTENED_BY} % less {side} work: "
        + (f"up to {percent(100 * saved / window_ns)} less time" if saved is not None else NOT_ENOUGH_RECORDED)
        for side, saved in (("GPU", verdict.shortened.device_ns), ("host", verdict.shortened.host_ns))
    )


def report_panels(summary: Summary, title: str, *, full: bool, all_rows: bool = False) -> RenderableType:
    """The summary and the verdict, and with ``full`` all that is known."""
    panels = [summary_table(summary, title=title), verdict_panel(summary), *advice_lines(summary, title)]
    return Group(*panels, details_panel(summary, all_rows=all_rows)) if full else Group(*panels)


def verdict_panel(summary: Summary) -> RenderableType:
    """One sentence, what it rests on, and what a tenth less of each side would bring."""
    verdict = summary.verdict
    lines: list[RenderableType] = [Text(plain(verdict.sentence), HEADER)]
    lines += [Padding(Text(plain(line)), (0, 0, 0, 2)) for line in verdict.evidence]
    lines += [Text(line, LABEL) for line in shortened(summary)]
    return framed(Group(*lines), ["verdict", verdict.bound.value], None)


def advice_lines(summary: Summary, file: str) -> Iterator[RenderableType]:
    """What to do, and below each the next command, whole on its line, so that it can be copied."""
    for advice in about(summary.advice, file):
        what = Table.grid(padding=(0, 2, 0, 0))
        what.add_column(no_wrap=True)
        what.add_column(max_width=WIDTH - len("next  "))
        what.add_row(Text("next", LABEL), Text(plain(advice.what)))
        yield what
        yield Text(f"      {plain(advice.command)}", HEADER, no_wrap=True, overflow="ignore")


def details_panel(summary: Summary, *, all_rows: bool = False) -> RenderableType:
    """Phases, overlap, gaps, idle time over time and context, latency: as far as they are known."""
    parts: list[RenderableType] = []
    for sheet in details(summary, all_rows=all_rows):
        if not sheet.rows:
            continue
        parts += ["", sheet.to_rich()] if parts else [sheet.to_rich()]
    return framed(Group(*parts), ["details"], None)
