"""What a notebook types: a trace and its file, with the verbs of the command line.

::

    t = cbprof.load("trace.sync.json")
    t.summary()                                  # a table in a notebook
    t.summary().to_pandas()                      # the same as a data frame
    t.predict(scale={"schedule": 0.5})
    t.compare(cbprof.load("trace.async.json"))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cbprof.errors import DataError, UsageError
from cbprof.numbers import counted

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from cbprof.analysis.accounting.states import Activity
    from cbprof.analysis.gate.check import Limits
    from cbprof.analysis.summary import Summary
    from cbprof.render.views.baseline import BaselineView
    from cbprof.render.views.examined import ComparisonView, HazardsView, HealthView, LimitsView, RanksView
    from cbprof.render.views.requests import RequestsView
    from cbprof.render.views.run import DeviceWorkView, GapsView, PredictionView, StepsView, SummaryView, TimelineView
    from cbprof.trace import Trace

TRACES = (".json", ".json.gz")
TABLES = (".parquet", ".csv", ".csv.gz")
PAGES = (".html", ".htm")
IMAGES = (".png", ".svg", ".pdf")

Steps = tuple[int | None, int | None]


def load(path: str | Path, *, cached: bool = True, progress: Callable[[int, int], None] | None = None) -> Recording:
    """Read a trace file. Raises DataError where it is missing or cannot be read.

    ``cached``: large files of other tools are kept in a form that is read faster the next time. ``progress`` is called
    with how many bytes were read, and how many there are.
    """
    from cbprof.formats import load as load_trace

    return Recording(load_trace(path, cached=cached, progress=progress), Path(path))


def load_runs(path: str | Path, read: Callable[[Path], Recording] = load) -> tuple[Recording, ...]:
    """The run of a file and, where it is the first of several of ``cbprof run --repeat``, those of them beside it.

    ``read`` reads each file. Raises DataError where one cannot be read.
    """
    from cbprof.files import with_infix

    first = read(Path(path))
    said = first.trace.meta.extra.get("repeat")
    if not isinstance(said, dict) or not isinstance(said.get("of"), int):
        return (first,)
    paths = (with_infix(Path(path), str(number)) for number in range(2, said["of"] + 1))
    others = [read(each) for each in paths if each.is_file()]
    return (first, *(each for each in others if each.trace.meta.extra.get("repeat") == said))


def compare_runs(
    before: Sequence[Recording],
    after: Sequence[Recording],
    *,
    steps: Steps | None = None,
    seed: int = 0,
    fail_if: Sequence[str] = (),
    all_rows: bool = False,
) -> ComparisonView:
    """Several runs before a change, and several after it: their medians, and the two median runs in detail.

    The rest is as in :meth:`Recording.compare`. A limit is broken only where the runs are apart.
    """
    from cbprof.analysis.gate import runs
    from cbprof.analysis.gate.compare import FailIf, compare
    from cbprof.render.views.examined import ComparisonView

    conditions = [FailIf.parse(text) for text in fail_if]
    if len(before) == len(after) == 1:
        sides = None
        old, new = before[0], after[0]
    else:
        old_runs, new_runs = (runs.Runs.of([each.trace for each in side], steps=steps) for side in (before, after))
        sides = (old_runs, new_runs)
        old, new = before[runs.median_run(sides[0])], after[runs.median_run(sides[1])]
    found = compare(old.trace, new.trace, steps=steps, seed=seed)
    limits = tuple(each.judge(found) if sides is None else runs.judge(each, *sides) for each in conditions)
    return ComparisonView((old.name, new.name), found, limits, all_rows, sides)


def save_baseline(runs: Sequence[Recording], path: str | Path) -> Path:
    """Write the figures of runs of one workload as a small JSON file, or into a folder under the name of the first.

    Raises UsageError where the runs are not of one workload, or the file cannot be written.
    """
    from cbprof.analysis.gate.runs import Runs
    from cbprof.render.views.baseline import baseline_at, write_baseline

    target = baseline_at(Path(path), runs[0].name)
    files = [file for run in runs for file in run.files]
    write_baseline(Runs.of([run.trace for run in runs]), target, of=files)
    return target


def compare_baseline(runs: Sequence[Recording], path: str | Path, *, fail_if: Sequence[str] = ()) -> BaselineView:
    """Runs against what :func:`save_baseline` wrote before; ``fail_if`` as in :meth:`Recording.compare`.

    Raises DataError where there is no baseline, UsageError where it was measured in another way.
    """
    from cbprof.analysis.gate.compare import FailIf
    from cbprof.analysis.gate.runs import Runs, check_comparable, judge
    from cbprof.render.views.baseline import BaselineView, baseline_at, read_baseline

    conditions = [FailIf.parse(text) for text in fail_if]
    source = baseline_at(Path(path), runs[0].name)
    before, after = read_baseline(source), Runs.of([run.trace for run in runs])
    check_comparable(before, after)
    limits = tuple(judge(condition, before, after) for condition in conditions)
    return BaselineView(runs[0].name, (before, after), limits, (source, *(file for run in runs for file in run.files)))


def load_ranks(
    *paths: str | Path,
    steps: Steps | None = None,
    skip: int = 0,
    window: str | None = None,
    activity: Activity | None = None,
    cached: bool = True,
) -> RanksView:
    """The traces of several ranks, in files and folders of this machine, side by side; options as in ``summary``.

    A file that cannot be used is a row with its reason.
    """
    from cbprof.fleet.files import find_files
    from cbprof.fleet.run import run_local
    from cbprof.fleet.task import examine_local
    from cbprof.render.views.examined import RanksView

    figures = partial(_figures, steps=steps, skip=skip, window=window, activity=activity)
    files = find_files([str(path) for path in paths])
    return RanksView(run_local(files, partial(examine_local, summarize=figures, cached=cached)))


def save_report(recordings: Sequence[Recording], path: str | Path) -> Path:
    """Write the page that people send to each other, about one run or several. Raises UsageError where it cannot be."""
    from cbprof.render.views.pictures import save_page

    target = Path(path)
    if not target.name.lower().endswith(PAGES):
        raise UsageError(f"{target}: the report is a page: choose a name that ends in .html")
    save_page(target, recordings)
    return target


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A trace, and the file it came from, if any, or the ``sources`` of which it was made.

    ``label``: what pictures and reports call it, in place of its file.
    Every verb returns a small frozen object that a notebook draws. ``print()`` shows it as the command line does, and
    ``to_json()``, ``to_markdown()`` and ``to_pandas()`` give it in those forms. ``steps`` everywhere: (first, last),
    last exclusive, None for open; UsageError where the trace does not have them.
    """

    trace: Trace
    path: Path | None = None
    sources: tuple[Path, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        """The file as it was given."""
        return str(self.path) if self.path else f"{self.trace.evidence} {self.trace.mode or 'trace'}"

    @property
    def files(self) -> tuple[Path, ...]:
        """What was read: none of it is written over, and what is written is as private."""
        return ((self.path,) if self.path else ()) + self.sources

    def summary(
        self,
        *,
        steps: Steps | None = None,
        skip: int = 0,
        window: str | None = None,
        activity: Activity | None = None,
        detailed: bool = False,
        all_rows: bool = False,
    ) -> SummaryView:
        """The figures of the run: time, idle share, verdict, what the device waited for.

        ``skip``: leave out this many steps at the start. ``window``, ``activity``: as in ``cbprof report``; by default
        what suits the tool that recorded the trace. ``detailed``: the tables show all that is
        known, with ``all_rows`` in every row.
        """
        from cbprof.render.views.run import SummaryView

        figures = _figures(self.trace, steps=steps, skip=skip, window=window, activity=activity)
        return SummaryView(self.name, figures, detailed, self.files, all_rows=all_rows)

    def gaps(self, *, steps: Steps | None = None, activity: Activity | None = None) -> GapsView:
        """When the devices had nothing to run, and who is to blame."""
        from cbprof.render.views.run import GapsView

        return GapsView(self.summary(steps=steps, activity=activity).full)

    def steps(self, *, steps: Steps | None = None) -> StepsView:
        """What each step cost the host and the device."""
        from cbprof.render.views.run import StepsView

        return StepsView(self.summary(steps=steps).full)

    def device_work(self, *, steps: Steps | None = None) -> DeviceWorkView:
        """What the devices ran, kernel by kernel and by group; empty without records of single kernels."""
        from cbprof.render.views.run import DeviceWorkView

        return DeviceWorkView(self.summary(steps=steps).full)

    def predict(
        self,
        *,
        slots: int | None = None,
        steps_per_sync: int | None = None,
        gpu_speed: float = 1.0,
        scale: Mapping[str, float] | None = None,
        drop: Collection[str] = (),
    ) -> PredictionView:
        """The async run that nobody has written yet, with changes. ``Recording(view.full.trace)`` is one to look at.

        ``slots``: batches in flight, 2 if not given; 1 is the sync order. ``steps_per_sync``: the multi-step order
        instead, with a look at the tokens every so many steps. ``gpu_speed``: how many times as fast the device
        computes. ``scale``: factors on the time of host phases. ``drop``: host phases that are gone.
        """
        from cbprof.analysis.predict.predict import predict
        from cbprof.render.views.run import PredictionView

        changes = {"slots": slots, "steps_per_sync": steps_per_sync}
        found = predict(self.trace, **changes, gpu_speed=gpu_speed, scale=scale, drop=drop)
        unchanged = None if found.what_if.changes_nothing else predict(self.trace)
        return PredictionView(self.name, found, self.trace, unchanged)

    def compare(
        self,
        other: Recording,
        *,
        steps: Steps | None = None,
        seed: int = 0,
        fail_if: Sequence[str] = (),
        all_rows: bool = False,
    ) -> ComparisonView:
        """This run before, ``other`` after a change. ``seed``: of the bootstrap behind the intervals.

        ``fail_if``: what must not have happened, as ``["slower:2%", "idle:1pp"]``; the view's ``limits`` say whether.
        ``all_rows``: show every host phase, however many there are.
        """
        return compare_runs([self], [other], steps=steps, seed=seed, fail_if=fail_if, all_rows=all_rows)

    def requests(self, *, request: int | None = None, all_rows: bool = False) -> RequestsView:
        """The requests, slowest first, and where the time of each went.

        ``request``: only this one, token by token. ``all_rows``: the table has all. Raises DataError where the trace
        has no request, UsageError where it has not that one.
        """
        from cbprof.analysis.requests.lives import lives
        from cbprof.render.views.requests import RequestsView

        found = lives(self.trace)
        if not found:
            told = "says of no request when it was served on a device"
            raise DataError(f"{self.name}: {told}; record a run with `cbprof run -o trace.json`")
        chosen = tuple(life for life in found if request in (None, life.request))
        if not chosen:
            numbers = sorted(life.request for life in found)
            raise UsageError(f"{self.name}: has no request {request}; they go from {numbers[0]} to {numbers[-1]}")
        return RequestsView(self.name, chosen, request, self.files, all_rows)

    def hazards(self) -> HazardsView:
        """Whether the orderings that batching one ahead rests on were kept."""
        from cbprof.analysis.hazards.hazards import find_hazards
        from cbprof.render.views.examined import HazardsView

        return HazardsView(self.name, find_hazards(self.trace), self.trace.mode)

    def health(self) -> HealthView:
        """Whether the figures can be trusted, and what speaks against it: ``cbprof doctor``."""
        from cbprof.analysis.profiles.health import examine
        from cbprof.render.views.examined import HealthView

        return HealthView(self.name, examine(self.trace))

    def check(
        self, limits: Limits | Mapping[str, str | int | float | bool], *, steps: Steps | None = None
    ) -> LimitsView:
        """Hold the run against limits, as ``{"max-idle": "1%", "no-hazards": True}``: ``cbprof check``."""
        from cbprof.analysis.gate.check import Limits, check
        from cbprof.render.views.examined import LimitsView

        wanted = limits if isinstance(limits, Limits) else Limits.parse(limits, "check")
        return LimitsView(self.name, check(self.trace, wanted, steps=steps), self.files)

    def spans(self) -> pd.DataFrame:
        """One row a span: what it was, on which lane, from when on and for how long (ns), of which step."""
        return self.trace.to_pandas()

    def save(self, path: str | Path, *, flows: bool = True) -> Path:
        """Write the trace as what the name ends in: one of ``TRACES`` or ``TABLES``, which have one row a span.

        ``flows``: in a .json, arrows from each launch to what it launched. Raises UsageError for any other name, and
        where the file cannot be written.
        """
        target = Path(path)
        if target.name.endswith(TRACES):
            from cbprof.analysis.accounting.host import launches
            from cbprof.formats import save

            save(self.trace, target, launch_of=launches(self.trace) if flows else None, of=self.files)
        elif target.name.endswith(TABLES):
            from cbprof.formats.tables import write_csv, write_parquet

            write = write_parquet if target.suffix == ".parquet" else write_csv
            write(self.trace, target, of=self.files)
        else:
            known = ", ".join(TRACES + TABLES)
            raise UsageError(f"{target}: its name does not say what to write; end it in one of {known}")
        return target

    def plot(self, other: Recording | None = None) -> TimelineView:
        """The interactive timeline; of ``other`` below it, on the same time axis."""
        from cbprof.render.views.pictures import timeline_of

        return timeline_of(self, other)

    def save_plot(self, path: str | Path, *, other: Recording | None = None, width: str | None = None) -> Path:
        """Write the timeline as what the name ends in: one of ``PAGES``, or of ``IMAGES``, which need matplotlib.

        ``width``: of an image, as ``7in``, ``180mm`` or ``1400px``. Raises UsageError for any other name, and where the
        file cannot be written.
        """
        target = Path(path)
        if target.name.lower().endswith(PAGES):
            self.plot(other).save(target)
        elif target.name.lower().endswith(IMAGES):
            from cbprof.render.views.pictures import save_image

            save_image(target, width, self, other)
        else:
            raise UsageError(f"{target}: choose a name that ends in {', '.join((PAGES[0], *IMAGES))}")
        return target

    def print_plot(self, other: Recording | None = None) -> None:
        """Draw the timeline on the terminal, as wide as it is."""
        from cbprof.render.views.pictures import print_timeline

        print_timeline(self, other)

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

    def plot_flame(self, other: Recording | None = None) -> Figure:
        """Host stacks by the GPU idle time that they cost; of ``other`` too, coloured by what changed (plotly)."""
        from cbprof.render.views.pictures import flame_of_code

        return flame_of_code(self, other)

    def __repr__(self) -> str:
        return f"Recording({self.name}: {counted(len(self.trace), 'span')}, {self.trace.mode or 'unknown mode'})"


def _figures(trace: Trace, *, steps: Steps | None, skip: int, window: str | None, activity: Activity | None) -> Summary:
    """The figures that the options ask for; also called in other processes."""
    from cbprof.analysis.accounting.window import steps_after
    from cbprof.analysis.summary import summarize

    chosen = steps_after(trace, skip) if skip else steps
    return summarize(trace, steps=chosen, window=window, activity=activity)
