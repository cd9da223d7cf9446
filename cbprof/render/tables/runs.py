"""How several runs read: the median of each figure, its lowest and highest, and whether two groups are apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cbprof.analysis.gate.compare import MEASURES
from cbprof.analysis.gate.limits import LimitResult
from cbprof.analysis.gate.runs import FIGURES, Runs, change_of, time_of
from cbprof.numbers import counted, duration, percent, ratio
from cbprof.render.panel import framed
from cbprof.render.sheet import Sheet

_TEXT: Mapping[str, Callable[[float | None], str]] = {name: percent if name == "idle" else duration for name in FIGURES}


def spread_sheet(groups: Mapping[str, Runs]) -> Sheet:
    """The median of each figure, and below it the lowest and the highest. One column a group."""
    rows = []
    for name, text in _TEXT.items():
        values = [runs.values(name) for runs in groups.values()]
        rows.append((MEASURES[name].meaning, *(text(median(each) if each else None) for each in values)))
        rows.append(
            ("  lowest to highest", *(f"{text(each[0])} to {text(each[-1])}" if each else "" for each in values))
        )
    n_runs = max(len(runs.figures) for runs in groups.values())
    return Sheet((f"median of {counted(n_runs, 'run')}", *groups), rows)


def changes_sheet(before: Runs, after: Runs) -> Sheet:
    """The medians of both groups, how much they rose, and in how many pairs of runs the later is the worse one."""
    rows = []
    n_pairs = len(before.figures) * len(after.figures)
    for name, text in _TEXT.items():
        change = change_of(name, before, after)
        if change is not None:
            rise = "unknown" if change.rise is None else f"{change.rise:+.2f} {MEASURES[name].unit}"
            worse = f"{round(change.worse_pct * n_pairs / 100)} of {n_pairs}"
            rows.append((MEASURES[name].meaning, text(change.before), text(change.after), rise, worse))
    title = f"medians of {counted(len(before.figures), 'run')} and of {len(after.figures)}"
    return Sheet((title, "before", "after", "change", "pairs worse"), rows)


def gain_line(sync: Runs, async_: Runs) -> str:
    """The time of each async run by that of the sync run just before it: what drifts on the machine moves both."""
    pairs = [(time_of(old), time_of(new)) for old, new in zip(sync.figures, async_.figures, strict=False)]
    ratios = sorted(new / old for old, new in pairs if old and new)
    if not ratios:
        return ""
    spread = f"{ratio(ratios[0])} to {ratio(ratios[-1])} over {counted(len(ratios), 'pair')}"
    return f"async takes {ratio(median(ratios))} of the time of sync ({spread})"


def runs_panel(before: Runs, after: Runs, limits: Sequence[LimitResult]) -> RenderableType:
    """The spread of both groups, the change of the medians, and the limits."""
    spread, changes = spread_sheet({"before": before, "after": after}), changes_sheet(before, after)
    parts: list[RenderableType] = [changes.to_rich(), "", spread.to_rich()]
    if note := device_note(before, after):
        parts += ["", Text(note)]
    return Group(framed(Group(*parts), ["all runs"], None), *(Text(str(limit), overflow="fold") for limit in limits))


def device_note(before: Runs, after: Runs) -> str:
    """Said where the two were not recorded on one kind of device."""
    if None in (before.device, after.device) or before.device == after.device:
        return ""
    return f"before was recorded on {before.device}, after on {after.device}: times differ by that too"


def runs_json(before: Runs, after: Runs) -> dict[str, Any]:
    """Plain data with stable keys. ``changes``: by the names of --fail-if; null where a figure is unknown."""
    changes = {name: change_of(name, before, after) for name in FIGURES}
    return {
        "before": before.to_json()["runs"],
        "after": after.to_json()["runs"],
        "changes": {name: None if change is None else change._asdict() for name, change in changes.items()},
    }
