"""How a comparison reads: is it the same workload, what changed, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cbprof.analysis.gate.compare import CONFIDENCE_PCT, Comparison, Ratio
from cbprof.analysis.gate.limits import LimitResult
from cbprof.analysis.summary import Summary
from cbprof.names import plain, short
from cbprof.numbers import count, counted, duration, percent, rate, ratio
from cbprof.render.panel import framed
from cbprof.render.sheet import Sheet
from cbprof.render.tables.device_work import changed_work, per
from cbprof.render.tables.summary import comparison_table, lost_in_words

Names = tuple[str, str]


def comparison_panels(
    found: Comparison, names: Names, limits: Sequence[LimitResult], *, all_rows: bool = False
) -> RenderableType:
    """The two runs side by side, the change with its interval, the phases, and the limits."""
    parts: list[RenderableType] = [Text(line) for line in _lines(found)]
    for sheet in (differences(found), ratios(found), *_parts(found, all_rows=all_rows)):
        if sheet.rows:
            parts += ["", sheet.to_rich()]
    panel = framed(Group(*parts), [" and ".join(plain(name) for name in names)], None)
    return Group(comparison_table(found.before, found.after), panel, *(Text(str(limit)) for limit in limits))


def sheets(
    found: Comparison, names: Names, limits: Sequence[LimitResult] = (), *, all_rows: bool = False
) -> Iterator[Sheet]:
    """The same as tables."""
    yield from (figures(found, names), ratios(found), differences(found), *_parts(found, all_rows=all_rows))
    yield limits_sheet(limits)


def _parts(found: Comparison, *, all_rows: bool) -> tuple[Sheet, Sheet]:
    """What the host and the device did in a step."""
    return phases(found).shortened(all_rows=all_rows), changed_work(found, all_rows=all_rows)


def limits_sheet(limits: Sequence[LimitResult]) -> Sheet:
    """One row a limit."""
    rows = [("ok" if limit.passed else "FAIL", limit.name, limit.text) for limit in limits]
    return Sheet(("result", "limit", "found"), rows)


def _lines(found: Comparison) -> Iterator[str]:
    """What is compared, and what is not."""
    yield workload_line(found)
    yield from devices_lines(found)
    yield from host_lines(found)


def workload_line(found: Comparison) -> str:
    return {
        True: "the same workload",
        False: "NOT the same workload: the times below do not answer one question",
        None: "a trace does not say what it served: whether the workloads are the same is unknown",
    }[found.same_workload]


def devices_lines(found: Comparison) -> Iterator[str]:
    """Which devices were compared, where that is not plain."""
    pairs = found.devices
    old, new = ([device.device for device in each.devices] for each in (found.before, found.after))
    if old == new and len(pairs) < 2:
        return
    told = [f"{before}" if before == after else f"{before} with {after}" for before, after in pairs]
    yield f"compared: GPU {', '.join(told)}" if told else "no GPU is in both traces: none are compared"
    for name, ids, mine in (("before", old, [a for a, _ in pairs]), ("after", new, [b for _, b in pairs])):
        if alone := [str(each) for each in ids if each not in mine]:
            yield f"only {name}: GPU {', '.join(alone)}"


def figures(found: Comparison, names: Names) -> Sheet:
    """The figures of both runs; idle share and longest gap are those of the worst device."""
    worst = ", worst GPU" if max(len(each.devices) for each in (found.before, found.after)) > 1 else ""
    rows = [
        (label, *values)
        for label, *values in zip(
            ("wall time", "tokens/s", "steps", "time per step", f"GPU idle{worst}", f"longest gap{worst}"),
            _figures(found.before),
            _figures(found.after),
            strict=True,
        )
    ]
    if found.before.lost or found.after.lost:
        rows.append(("lost", *(lost_in_words(each.lost) for each in (found.before, found.after))))
    return Sheet(("", *names), rows, "", (*_lines(found), *_gist(found)))


def _figures(summary: Summary) -> Iterator[str]:
    yield duration(summary.wall_ns or None)
    yield rate(summary.tokens_per_s)
    yield count(summary.n_steps)
    yield duration(summary.wall_ns / summary.n_steps if summary.n_steps else None)
    yield percent(summary.worst_idle_pct)
    yield duration(summary.longest_gap_ns)


def _gist(found: Comparison) -> Iterator[str]:
    if found.slower is not None:
        unit = "token" if found.per_token is not None else "step"
        yield f"Time per {unit}: {interval(found.slower)} of before."


def ratios(found: Comparison) -> Sheet:
    """After / before, with the interval that the variation along the runs gives."""
    rows = [("time per token", interval(found.per_token))] if found.per_token else []
    if found.per_step:
        rows.append((f"time per step, {counted(found.n_aligned, 'step')} that both have", interval(found.per_step)))
    if found.idle_pp is not None:
        rows.append(("idle share", f"{found.idle_pp:+.2f} pp"))
    return Sheet((f"after / before, {CONFIDENCE_PCT} % interval", "change"), rows)


def interval(found: Ratio) -> str:
    if found.low is None or found.high is None:
        return f"{ratio(found.value)} (too few steps for an interval)"
    return f"{ratio(found.value)} [{ratio(found.low)}, {ratio(found.high)}]"


def differences(found: Comparison) -> Sheet:
    """What the metadata of the traces says differently."""
    rows = [(each.key, _stated(each.before), _stated(each.after)) for each in found.differences]
    return Sheet(("differs", "before", "after"), rows)


def _stated(value: object) -> str:
    text = "not stated" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def phases(found: Comparison) -> Sheet:
    """Host time by phase, per step or in all, and how much of it the GPU waited through.

    Without rows where the host of a run is not recorded, so that there is nothing to compare.
    """
    rows = [
        (
            f"{short(change.name)} (waiting)" if change.waiting else short(change.name),
            _time(change.before_ns),
            _time(change.after_ns),
            ratio(change.ratio) if change.before_ns and change.after_ns is not None else "",
            f"{_time(change.before_exposed_ns)} to {_time(change.after_exposed_ns)}",
        )
        for change in (() if any(hosts_unknown(found)) else found.phases)
    ]
    parts = [change.larger_ns for change in found.phases]
    return Sheet((f"host phase, {per(found)}", "before", "after", "ratio", "exposed"), rows, parts=parts)


def _time(ns: float | None) -> str:
    return "none" if ns is None else duration(ns)


def hosts_unknown(found: Comparison) -> tuple[bool, bool]:
    """Of each run, whether it has figures but no record of what the host did."""
    before, after = (not each.phases for each in (found.before, found.after))
    return before, after


def host_lines(found: Comparison) -> Iterator[str]:
    """Why the phases of the host are not compared, where they are not."""
    before, after = hosts_unknown(found)
    if before or after:
        which = (
            "neither trace records"
            if before and after
            else f"the trace {'before' if before else 'after'} does not record"
        )
        yield f"host phases are not compared: {which} what the host did"
