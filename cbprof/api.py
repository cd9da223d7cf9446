"""What a notebook types: a trace and its file, with the verbs of the command line.

::

    t = cbprof.load("trace.sync.json")
    t.summary()                                  # a table in a notebook
    t.summary().to_pandas()                      # the same as a data frame
    t.predict(scale={"schedule": 0.5})
    t.compare(cbprof.load("trace.async.json"))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.errors import UsageError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from cbprof.analysis.accounting.states import Activity
    from cbprof.analysis.gate.limits import LimitResult
    from cbprof.analysis.profiles.health import Health
    from cbprof.render.notebook import (
        ComparisonView,
        GapsView,
        HazardsView,
        PredictionView,
        StepsView,
        SummaryView,
        TimelineView,
    )
    from cbprof.trace import Trace

TRACES = (".json", ".json.gz")
TABLES = (".parquet", ".csv", ".csv.gz")

Steps = tuple[int | None, int | None]


def load(path: str | Path) -> Recording:
    """Read a trace file. Raises DataError where it is missing or cannot be read."""
    from cbprof.formats import load as load_trace

    return Recording(load_trace(path), Path(path))


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A trace, and the file it came from, if any. ``steps`` everywhere: (first, last), last exclusive, None for open.

    Every verb returns a small frozen object that a notebook draws, with ``to_pandas()`` for more. All raise UsageError
    where the trace does not have the steps that were asked for.
    """

    trace: Trace
    path: Path | None = None

    @property
    def name(self) -> str:
        return self.path.name if self.path else f"{self.trace.evidence} {self.trace.mode or 'trace'}"

    def summary(
        self, *, steps: Steps | None = None, window: str | None = None, activity: Activity | None = None
    ) -> SummaryView:
        """The figures of the run: time, idle share, verdict, what the device waited for.

        ``window``, ``activity``: as in ``cbprof report``; by default what suits the tool that recorded the trace.
        """
        from cbprof.analysis.summary import summarize
        from cbprof.render.notebook import SummaryView

        return SummaryView(self.name, summarize(self.trace, steps=steps, window=window, activity=activity))

    def gaps(self, *, steps: Steps | None = None, activity: Activity | None = None) -> GapsView:
        """When the devices had nothing to run, and who is to blame."""
        from cbprof.render.notebook import GapsView

        return GapsView(self.summary(steps=steps, activity=activity).full)

    def steps(self, *, steps: Steps | None = None) -> StepsView:
        """What each step cost the host and the device."""
        from cbprof.render.notebook import StepsView

        return StepsView(self.summary(steps=steps).full)

    def predict(
        self,
        *,
        slots: int = 2,
        gpu_speed: float = 1.0,
        scale: Mapping[str, float] | None = None,
        drop: Collection[str] = (),
    ) -> PredictionView:
        """The async run that nobody has written yet, with changes. ``Recording(view.full.trace)`` is one to look at."""
        from cbprof.analysis.predict.predict import predict
        from cbprof.render.notebook import PredictionView

        found = predict(self.trace, slots=slots, gpu_speed=gpu_speed, scale=scale, drop=drop)
        return PredictionView(found, self.trace)

    def compare(self, other: Recording, *, steps: Steps | None = None, seed: int = 0) -> ComparisonView:
        """This run before, ``other`` after a change."""
        from cbprof.analysis.gate.compare import compare
        from cbprof.render.notebook import ComparisonView

        return ComparisonView((self.name, other.name), compare(self.trace, other.trace, steps=steps, seed=seed))

    def hazards(self) -> HazardsView:
        """Whether the orderings that batching one ahead rests on were kept."""
        from cbprof.analysis.hazards.hazards import find_hazards
        from cbprof.render.notebook import HazardsView

        return HazardsView(find_hazards(self.trace))

    def health(self) -> Health:
        """Whether the figures can be trusted, and what speaks against it: ``cbprof doctor``."""
        from cbprof.analysis.profiles.health import examine

        return examine(self.trace)

    def check(
        self, limits: Mapping[str, str | int | float | bool], *, steps: Steps | None = None
    ) -> tuple[LimitResult, ...]:
        """Hold the run against limits, as ``{"max-idle": "1%", "no-hazards": True}``: ``cbprof check``."""
        from cbprof.analysis.gate.check import Limits, check

        return check(self.trace, Limits.parse(limits, "check"), steps=steps)

    def save(self, path: str | Path, *, flows: bool = True) -> Path:
        """Write the trace as what the name ends in: one of ``TRACES`` or ``TABLES``, which have one row a span.

        ``flows``: in a .json, arrows from each launch to what it launched. Raises UsageError for any other name, and
        where the file cannot be written.
        """
        target = Path(path)
        if target.name.endswith(TRACES):
            from cbprof.analysis.accounting.host import launches
            from cbprof.formats import save

            save(self.trace, target, launch_of=launches(self.trace) if flows else None)
        elif target.name.endswith(TABLES):
            from cbprof.formats.tables import write_csv, write_parquet

            write = write_parquet if target.suffix == ".parquet" else write_csv
            write(self.trace, target)
        else:
            known = ", ".join(TRACES + TABLES)
            raise UsageError(f"{target}: its name does not say what to write; end it in one of {known}")
        return target

    def plot(self, other: Recording | None = None) -> TimelineView:
        """The interactive timeline; of ``other`` below it, on the same time axis."""
        from cbprof.render.notebook import TimelineView
        from cbprof.render.web.timeline import timeline_html

        return TimelineView(timeline_html(self.trace, other=other.trace if other else None))

    def plot_gaps(self) -> Figure:
        """Idle time by the length of the gap it lies in, and by what the GPU waited for (plotly)."""
        from cbprof.render.charts.run import gap_chart

        return gap_chart(self.trace)

    def plot_steps(self) -> Figure:
        """Host phases and device time of each step, with max(CPU, GPU), which no order of work can beat (plotly)."""
        from cbprof.render.charts.steps import steps_chart

        return steps_chart(self.trace)

    def plot_idle(self) -> Figure:
        """Idle time as a share, over time and over context length (plotly)."""
        from cbprof.render.charts.run import idle_chart

        return idle_chart(self.trace)

    def __repr__(self) -> str:
        return f"Recording({self.name}: {len(self.trace):,} spans, {self.trace.mode or 'unknown mode'})"
