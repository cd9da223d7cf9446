"""What a terminal shows of a summary, at the end of ``cbprof run`` and in ``cbprof report``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cbprof.analysis.accounting.cause_tree import Causes, in_words
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.gate.compare import comparable
from cbprof.analysis.requests.lost import LostWork
from cbprof.analysis.summary import Summary
from cbprof.names import plain
from cbprof.numbers import UNKNOWN, count, counted, duration, percent, rate, ratio
from cbprof.render.figures import Figures, KeyFigures
from cbprof.render.panel import HEADER, LABEL, closing_lines, framed
from cbprof.render.tables.statebar import StateBar, StateLabel, StateLegend, state_shares
from cbprof.render.theme import STATES

TOP_CAUSES = 5
SAID = 0.9
"""Of the idle time: as many causes are shown as it takes, and no fewer than :data:`TOP_CAUSES`."""
MIN_WIDTH = len("async / sync")  # of a column of figures, so that those of all tables stand below each other
IDLE = f"bold {STATES['cpu_only'].color}"


def summary_table(summary: Summary, *, title: str | None = None) -> RenderableType:
    """The figures of one trace. ``title``: its file."""
    parts: list[RenderableType] = [_key_figures(summary)]
    device = summary.most_idle
    if len(summary.devices) > 1:
        parts += ["", _per_device(summary)]
    if device is not None and device.idle_ns is not None:
        parts += ["", StateBar(device.states), StateLegend(device.states)]
        if device.idle_ns:
            parts += ["", _waited_for(summary, device), "", _ceiling(device)]
    if summary.lost:
        parts.append(Text.assemble(("lost     ", LABEL), lost_in_words(summary.lost)))
    window = summary.window.name if summary.window and summary.window.name != "run" else None
    parts += closing_lines([summary])
    return framed(Group(*parts), [title, window, summary.mode, summary.device_name], summary.engine)


def comparison_table(before: Summary, after: Summary) -> RenderableType:
    """Two traces side by side, such as a sync and an async run of one workload."""
    names = (plain(before.mode or "before"), plain(after.mode or "after"))
    if names[0] == names[1]:
        names = ("before", "after")
    parts: list[RenderableType] = [
        _figures_compared(before, after, names),
        "",
        _bars(before, after, names),
        _states_compared(before, after),
        "",
    ]
    if waited := _causes_compared(before, after, names):
        parts += [waited, ""]
    if gain := _gain(before, after, names):
        parts.append(gain)
    parts += closing_lines([before, after], names)
    return framed(Group(*parts), [f"{names[0]} and {names[1]}", after.device_name], after.engine)


def _key_figures(summary: Summary) -> KeyFigures:
    """Time and work on the left, the device on the right."""
    idle, active = _text_of(IDLE_PCT, summary), _text_of(ACTIVE_PCT, summary)
    gaps = longest = UNKNOWN
    device = summary.most_idle
    if device is not None and device.idle_ns is not None:
        active_ns = device.window.length_ns - device.idle_ns + device.missing_ns
        idle, active = f"{idle}  {duration(device.idle_ns)}", f"{active}  {duration(active_ns)}"
        gaps, longest = count(len(device.gaps)), _longest_gap(device)

    left = [(figure.label, Text(_text_of(figure, summary))) for figure in (WALL, TOKENS, STEPS, PER_STEP)]
    right = [
        (IDLE_PCT.label, Text(idle, "" if idle == UNKNOWN else IDLE)),
        (ACTIVE_PCT.label, Text(active)),
        ("gaps", Text(gaps)),
        ("longest gap", Text(longest)),
    ]
    return KeyFigures(left, right)


def _longest_gap(device: DeviceSummary) -> str:
    if not len(device.gaps):
        return "none"
    (row,) = device.gaps.longest(1).tolist()
    place = place_of(device.gaps, row)
    return duration(device.gaps.longest_ns) + (f", {place}" if place else "")


def place_of(gaps: Gaps, row: int) -> str:
    """Where a gap lies among the steps: ``before step 7``, ``inside step 7``; nothing where it ends with no step."""
    step = int(gaps.step[row])
    return f"{'inside' if gaps.inside_step[row] else 'before'} step {step}" if step >= 0 else ""


def _per_device(summary: Summary) -> Table:
    grid = Table.grid(padding=(0, 3))
    for device in summary.devices:
        grid.add_row(Text(f"GPU {device.device}", LABEL), f"idle {percent(device.idle_pct)}")
    return grid


def _waited_for(summary: Summary, device: DeviceSummary) -> Figures:
    """The largest causes of idle time, per step if there are steps, in all, and as shares of it."""
    found = list(causes_in_words(device.causes).items())
    named_ns = np.cumsum([ns for _, ns in found])
    enough = max(TOP_CAUSES, int(np.searchsorted(named_ns, SAID * device.gaps.total_ns)) + 1)
    shown, others = found[:enough], found[enough:]
    if others:
        shown.append((f"{len(others)} others" if len(others) > 1 else others[0][0], sum(ns for _, ns in others)))
    table = _columns("the GPU waited for", *(["per step"] if summary.n_steps else []), "in all", "of idle")
    for name, ns in shown:
        per_step = [duration(ns / summary.n_steps)] if summary.n_steps else []
        table.add_row(Text(name), *per_step, duration(ns), percent(100 * ns / device.gaps.total_ns))
    return table


def causes_in_words(causes: Causes) -> dict[str, int]:
    """What the device waited for, in words, with the nanoseconds of each, most first."""
    return {plain(name): ns for name, ns in in_words(causes.totals).items()}


def _ceiling(device: DeviceSummary) -> Text:
    bound = f"at most {ratio(device.speedup_bound)} as fast" if device.speedup_bound else "no bound"
    return Text.assemble(
        ("ceiling  ", LABEL),
        f"{duration(device.ceiling_ns)} if the GPU never waited{for_the_host(device)}: ",
        (bound, HEADER),
    )


def lost_in_words(lost: LostWork | None) -> str:
    """``30 tokens dropped, 2 preemptions, 120 tokens computed again``."""
    if lost is None:
        return UNKNOWN
    parts = [f"{counted(lost.dropped, 'token')} dropped"] if lost.dropped else []
    parts += [counted(lost.preemptions, "preemption")] if lost.preemptions else []
    parts += [f"{counted(lost.recomputed, 'token')} computed again"] if lost.recomputed else []
    return ", ".join(parts) or "nothing"


def for_the_host(device: DeviceSummary) -> str:
    """What it would not wait for, where it waited for requests as well, which no host can hasten."""
    return " for the host" if device.starved_ns else ""


class _Figure(NamedTuple):
    """One figure of a summary: None where it is unknown."""

    label: str
    value: Callable[[Summary], float | None]
    text: Callable[[float | None], str]
    style: str = ""


def _text_of(figure: _Figure, summary: Summary) -> str:
    return figure.text(figure.value(summary))


def _idle_pct(summary: Summary) -> float | None:
    device = summary.most_idle
    return None if device is None else device.idle_pct


def _active_pct(summary: Summary) -> float | None:
    idle = _idle_pct(summary)
    return None if idle is None else 100 - idle


def _per_step(summary: Summary) -> float | None:
    return summary.wall_ns / summary.n_steps if summary.n_steps else None


WALL = _Figure("wall time", lambda summary: summary.wall_ns or None, duration)
TOKENS = _Figure("tokens/s", lambda summary: summary.tokens_per_s, rate)
STEPS = _Figure("steps", lambda summary: summary.n_steps, lambda value: count(int(value or 0)))
PER_STEP = _Figure("time per step", _per_step, duration)
IDLE_PCT = _Figure("GPU idle", _idle_pct, percent, IDLE)
ACTIVE_PCT = _Figure("GPU active", _active_pct, percent)


def _lost(label: str, value: Callable[[LostWork], int | None]) -> _Figure:
    return _Figure(label, lambda summary: value(summary.lost) if summary.lost is not None else None, _whole)


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else count(int(value))


LOST = (
    _lost("tokens dropped", lambda lost: lost.dropped),
    _lost("preemptions", lambda lost: lost.preemptions),
    _lost("tokens computed again", lambda lost: lost.recomputed),
)
"""Shown where a run has some of it."""


def _figures_compared(before: Summary, after: Summary, names: tuple[str, str]) -> Figures:
    table = _columns("", *names, f"{names[1]} / {names[0]}")
    same = comparable(before.evidence, after.evidence)
    lost = (figure for figure in LOST if figure.value(before) or figure.value(after))
    for figure in (WALL, TOKENS, STEPS, PER_STEP, IDLE_PCT, *lost):
        old, new = figure.value(before), figure.value(after)
        change = ratio(new / old) if old and new is not None and same else ""
        table.add_row(
            Text(figure.label, "" if figure.style else LABEL),
            figure.text(old),
            figure.text(new),
            change,
            style=figure.style,
        )
    return table


def _bars(before: Summary, after: Summary, names: tuple[str, str]) -> Table:
    """The states of both on one scale of time, so that the shorter run has the shorter bar."""
    longest = max(before.wall_ns, after.wall_ns, 1)
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    for name, summary in zip(names, (before, after), strict=True):
        device = summary.most_idle
        if device is not None and device.idle_ns is not None:
            grid.add_row(Text(name, LABEL), StateBar(device.states, summary.wall_ns / longest))
    return grid


def _states_compared(before: Summary, after: Summary) -> Figures:
    """The legend of the bars, with the shares of both."""
    table = _columns("", *("",) * 3, show_header=False)
    devices = (before.most_idle, after.most_idle)
    found = [None if device is None else device.known_states for device in devices]
    untraced = any(each.untraced for each in found if each is not None)
    for old, new in zip(*(state_shares(each, untraced=untraced) for each in found), strict=True):
        table.add_row(StateLabel(old), old.share, new.share, "")
        if old.active or new.active:
            table.add_row(Text("    GPU active meanwhile"), old.active, new.active, "")
    return table


def _causes_compared(before: Summary, after: Summary, names: tuple[str, str]) -> Figures | None:
    """The largest causes of idle time per step, in either."""
    per_step: list[dict[str, float]] = []
    for summary in (before, after):
        device = summary.most_idle
        found = causes_in_words(device.causes) if device is not None and summary.n_steps else {}
        per_step.append({name: ns / summary.n_steps for name, ns in found.items()})
    old, new = per_step
    largest = sorted({**old, **new}, key=lambda name: -max(old.get(name, 0), new.get(name, 0)))[:TOP_CAUSES]
    if not largest:
        return None
    table = _columns("the GPU waited for, per step", *names, f"{names[1]} / {names[0]}")
    same = comparable(before.evidence, after.evidence)
    for name in largest:
        change = ratio(new.get(name, 0) / old[name]) if same and old.get(name) else ""
        table.add_row(Text(name), duration(old.get(name, 0)), duration(new.get(name, 0)), change)
    return table


def _gain(before: Summary, after: Summary, names: tuple[str, str]) -> Text | None:
    """What changed per token (or per step), against what could have at most."""
    if not comparable(before.evidence, after.evidence):
        return Text("measured in different ways, so that no figure of one can be set against the other")
    device = before.most_idle
    if before.tokens_per_s and after.tokens_per_s:
        gain, unit = after.tokens_per_s / before.tokens_per_s, "tokens/s"
    elif before.n_steps and after.n_steps:
        gain, unit = (before.wall_ns / before.n_steps) / (after.wall_ns / after.n_steps), "steps/s"
    else:
        return None
    text = Text.assemble((f"{names[1]} is {ratio(gain)} as fast", HEADER), f" in {unit}")
    if device is not None and device.speedup_bound:
        text.append(f"; a GPU that never waits{for_the_host(device)}: {ratio(device.speedup_bound)}")
        if gain > device.speedup_bound:
            text.append(", and more, since the GPU's own work took less time as well")
    return text


def _columns(first: str, *others: str, show_header: bool = True) -> Figures:
    """A table of names on the left and figures on the right, without rules."""
    return Figures([Text(header) for header in (first, *others)], least=MIN_WIDTH, show_header=show_header)
