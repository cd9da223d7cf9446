"""What the device spent its time on, by group and kernel; of one run, and of two side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from cbprof.analysis.device import DeviceSummary
from cbprof.analysis.gate.compare import Comparison
from cbprof.analysis.profiles.kernel_times import KernelChange, KernelTime
from cbprof.analysis.profiles.kernels import Group
from cbprof.numbers import UNKNOWN, count, counted, duration, percent, ratio
from cbprof.render.sheet import MOST_ROWS, Sheet

NAME_LENGTH = 40

Kernel = TypeVar("Kernel", KernelTime, KernelChange)


def device_work(device: DeviceSummary, *, all_rows: bool = False) -> Sheet:
    """The groups of device work, and the kernels of each that take most time. Without rows if none was recorded."""
    kernels = device.profile.kernels if device.profile else ()
    n_steps, whole_ns = len(device.steps), sum(each.ns for each in kernels)

    def figures(mine: Sequence[KernelTime]) -> tuple[str, ...]:
        ns = sum(each.ns for each in mine)
        a_step = [duration(ns / n_steps)] if n_steps else []
        share = percent(100 * ns / whole_ns if whole_ns else None)
        return *a_step, duration(ns), count(sum(each.count for each in mine)), share

    rows = [(name, *figures(mine)) for name, mine in _grouped(kernels, all_rows=all_rows)]
    return Sheet(("device work", *(["per step"] if n_steps else []), "in all", "count", "of work"), rows, "device work")


def changed_work(found: Comparison, *, all_rows: bool = False) -> Sheet:
    """The same of two runs, per step, or in all where one of them has no steps."""

    def figures(mine: Sequence[KernelChange]) -> tuple[str, ...]:
        before, after = (
            sum(ns for ns in each if ns is not None) if any(ns is not None for ns in each) else None
            for each in ([kernel.before_ns for kernel in mine], [kernel.after_ns for kernel in mine])
        )
        change = ratio(after / before) if before and after is not None else UNKNOWN
        return (*("none" if ns is None else duration(ns) for ns in (before, after)), change)

    rows = [(name, *figures(mine)) for name, mine in _grouped(found.kernels, all_rows=all_rows)]
    return Sheet((f"device work, {per(found)}", "before", "after", "ratio"), rows)


def per(found: Comparison) -> str:
    """What the times of host phases and device work are of."""
    return "per step" if found.by_step else "in all"


def cut_name(name: str) -> str:
    """A name in a line with others."""
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 3]}..."


def _grouped(kernels: Sequence[Kernel], *, all_rows: bool) -> Iterator[tuple[str, Sequence[Kernel]]]:
    """Rows, each with the kernels that it stands for: a group, then those of its kernels that are among the largest."""
    groups = [(group, [each for each in kernels if each.group is group]) for group in Group]
    shown = {each.name for each in kernels[: len(kernels) if all_rows else MOST_ROWS]}
    for group, mine in sorted(groups, key=lambda item: -sum(each.size for each in item[1])):
        if not mine:
            continue
        yield group.value, mine
        others = [each for each in mine if each.name not in shown]
        others = others if len(others) > 1 else []
        named = [each for each in mine if each not in others]
        yield from ((f"  {cut_name(each.name)}", [each]) for each in named)
        if others:
            yield f"  {counted(len(others), 'other')}", others
