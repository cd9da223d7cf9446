"""What an experiment found, in the form that the terminal, the page, the tutorial and the tests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cbprof.trace import Trace

Figure = int | float | str | bool


class Table(NamedTuple):
    """Figures for people: a header, and rows as long as it."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


NO_TABLE = Table((), ())


class NamedTrace(NamedTuple):
    """A recording, and what it shows in a few words."""

    name: str
    trace: Trace


class Series(NamedTuple):
    """A line of a chart: points (x, y), and whether they were measured or computed."""

    name: str
    points: Sequence[tuple[float, float]]
    measured: bool


class Chart(NamedTuple):
    """Lines over one pair of axes, which are named with their units."""

    x: str
    y: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The outcome of one experiment.

    ``proves``: one sentence with its numbers. ``ok``: it came out as it must, which for an experiment that is wrong by
    design means wrong, with the hazard found. ``unchecked``: what is claimed, but cannot be told on the device at hand,
    so that ``ok`` does not rest on it. ``figures``: its numbers for machines, times in ns, shares in per cent.
    ``traces``: what was recorded; the first two are drawn on one time axis. ``skipped``: why it did not run here.
    """

    name: str
    proves: str
    ok: bool
    table: Table = NO_TABLE
    figures: Mapping[str, Figure] = field(default_factory=dict)
    traces: tuple[NamedTrace, ...] = ()
    chart: Chart | None = None
    skipped: bool = False
    unchecked: tuple[str, ...] = ()


def needs_cuda(name: str, why: str) -> Finding:
    """The finding of an experiment that this device cannot show. It has no figures: none would be real."""
    return Finding(name, f"needs a CUDA device: {why}", ok=True, skipped=True)
