"""All experiments by name, in the order in which they tell the story."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cbprof.errors import UsageError
from cbprof.lab.experiments.carry_over import carry_over
from cbprof.lab.experiments.default_stream import default_stream
from cbprof.lab.experiments.events import events
from cbprof.lab.experiments.graphs import graphs
from cbprof.lab.experiments.host_bound import host_bound
from cbprof.lab.experiments.late_finish import late_finish
from cbprof.lab.experiments.no_events import no_events
from cbprof.lab.experiments.one_ahead import one_ahead
from cbprof.lab.experiments.one_slot import one_slot
from cbprof.lab.experiments.streams import streams
from cbprof.lab.experiments.turns import turns
from cbprof.lab.finding import Finding
from cbprof.lab.lab import Lab

Experiment = Callable[[Lab], Finding]

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "turns": turns,
        "streams": streams,
        "default-stream": default_stream,
        "no-events": no_events,
        "events": events,
        "one-slot": one_slot,
        "graphs": graphs,
        "carry-over": carry_over,
        "late-finish": late_finish,
        "async": one_ahead,
        "host-bound": host_bound,
    }
)


def experiment(name: str) -> Experiment:
    """The experiment of this name. Raises :class:`UsageError` where there is none."""
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def lesson(name: str) -> tuple[str, str]:
    """What an experiment is about: its first line, and the paragraph below, from its docstring."""
    first, _, rest = (experiment(name).__doc__ or "").strip().partition("\n\n")
    return " ".join(first.split()), " ".join(rest.split())
