"""One run: its figures, gaps and steps, what another order would bring, and its picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from rich.console import RenderableType

from cbprof.analysis.accounting.gaps import WhichGaps
from cbprof.analysis.accounting.intervals import sum_by
from cbprof.analysis.predict.predict import Prediction
from cbprof.analysis.summary import Summary, summarize
from cbprof.analysis.verdict.verdict import Verdict
from cbprof.files import write_whole
from cbprof.numbers import counted, duration, percent, ratio
from cbprof.render.charts.run import gap_chart
from cbprof.render.charts.steps import prediction_chart
from cbprof.render.sheet import Sheet
from cbprof.render.tables import summary_sheets
from cbprof.render.tables.csv_files import WORK_COLUMNS, write_csv
from cbprof.render.tables.device_work import device_work
from cbprof.render.tables.predict import ORDERS, Case, figures_sheet, predict_table
from cbprof.render.views.view import View, one_row
from cbprof.trace import BATCH_PHASES, Trace

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

ROWS_SHOWN = 10


class Loaded(Protocol):
    """What ``cbprof.load`` returns."""

    @property
    def trace(self) -> Trace: ...


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SummaryView(View):
    """The figures of the trace in the file ``name``. ``full``: all of them. ``detailed``: tables show all of them.

    ``files``: what was read. ``all_rows``: also of a long table.
    """

    name: str
    full: Summary
    detailed: bool = False
    files: tuple[Path, ...] = ()
    all_rows: bool = False

    @property
    def wall_ns(self) -> int:
        return self.full.wall_ns

    @property
    def idle_pct(self) -> float | None:
        """Of the device that waited longest; None where it is unknown."""
        return self.full.most_idle.idle_pct if self.full.most_idle else None

    @property
    def speedup_bound(self) -> float | None:
        return self.full.most_idle.speedup_bound if self.full.most_idle else None

    @property
    def tokens_per_s(self) -> float | None:
        return self.full.tokens_per_s

    @property
    def verdict(self) -> Verdict:
        return self.full.verdict

    def sheets(self) -> Iterable[Sheet]:
        yield from (summary_sheets.key_figures(self.full, self.name), summary_sheets.causes(self.full))
        if self.detailed:
            yield from summary_sheets.details(self.full, all_rows=self.all_rows)

    def to_rich(self) -> RenderableType:
        return summary_sheets.report_panels(self.full, self.name, full=self.detailed, all_rows=self.all_rows)

    def to_json(self, gaps: WhichGaps = "longest") -> dict[str, Any]:
        return self.full.to_json(self.name, gaps)

    def write_csv(self, target: Path) -> tuple[Path, ...]:
        """Write steps, gaps and device work: into a folder, or beside NAME.csv. Returns the files."""
        return write_csv(self.full, target, of=self.files)

    def __repr__(self) -> str:
        return f"{self.name}: GPU idle {percent(self.idle_pct)} of {duration(self.wall_ns)}. {self.verdict.sentence}"

    def to_pandas(self) -> pd.DataFrame:
        """One row a device."""
        import pandas as pd

        return pd.DataFrame(
            {
                "device": device.device,
                "mode": self.full.mode,
                "wall_ns": device.window.length_ns,
                "steps": len(device.steps),
                "tokens": self.full.tokens,
                "tokens_per_s": self.full.tokens_per_s,
                "idle_ns": device.idle_ns,
                "idle_pct": device.idle_pct,
                "idle_pct_excl_one_off": device.idle_pct_excl_one_off,
                "ceiling_ns": device.ceiling_ns,
                "speedup_bound": device.speedup_bound,
                "overlap_efficiency_pct": device.overlap.efficiency_pct,
                "bound": device.verdict.bound.value,
            }
            for device in self.full.devices
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class GapsView(View):
    """When the devices had nothing to run, and why."""

    full: Summary

    def sheets(self) -> Iterable[Sheet]:
        return [summary_sheets.gap_lengths(device) for device in self.full.devices if device.idle_ns is not None]

    def to_json(self) -> dict[str, Any]:
        """All gaps of each device, as in ``cbprof report --json --gaps all``."""
        devices = [{"device": each.device, "gaps": each.to_json("all")["gaps"]} for each in self.full.devices]
        return {"devices": devices}

    def plot(self) -> Figure:
        """Idle time by the length of the gap and by cause."""
        return gap_chart(self.full)

    def __repr__(self) -> str:
        return counted(sum(len(device.gaps) for device in self.full.devices), "gap")

    def to_pandas(self) -> pd.DataFrame:
        """One row a gap; columns ``blame.CAUSE`` by the causes of the report, which sum to ``length_ns``."""
        import pandas as pd

        frames = []
        for device in self.full.devices:
            gaps, parts, causes = device.gaps, device.blame.parts, device.causes.totals
            columns: dict[str, Any] = {
                "device": np.full(len(gaps), device.device),
                "step": gaps.step,
                "start_ns": gaps.start,
                "length_ns": gaps.length_ns,
            }
            place = device.causes.places(parts.cause, parts.span)
            by_cause = sum_by(place * len(gaps) + parts.gap, parts.ns, len(causes) * len(gaps))
            for cause, ns in zip(causes, by_cause.reshape(len(causes), len(gaps)), strict=True):
                column = f"blame.{cause.in_words}"
                columns[column] = columns.get(column, 0) + ns
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True).fillna(0) if frames else pd.DataFrame()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StepsView(View):
    """What each step cost the host and the device."""

    full: Summary

    def sheets(self) -> Iterable[Sheet]:
        for device in self.full.devices:
            steps = device.steps.to_json()
            shown = ("period_ns", "cpu_work_ns", "cpu_exposed_ns", "compute_ns", "gap_ns")
            rows = [
                (f"step {steps['step'][row]}", *(duration(steps[name][row]) for name in shown))
                for row in range(min(ROWS_SHOWN, len(device.steps)))
            ]
            title = f"the first of {counted(len(device.steps), 'step')} on GPU {device.device}"
            yield Sheet(("", "period", "host work", "exposed", "compute", "gap before"), rows, title)

    def to_json(self) -> dict[str, Any]:
        """The steps of each device, column by column; times in nanoseconds, None where unknown."""
        return {"devices": [{"device": each.device} | each.steps.to_json() for each in self.full.devices]}

    def __repr__(self) -> str:
        return counted(self.full.n_steps, "step")

    def to_pandas(self) -> pd.DataFrame:
        """One row a step and device; phases of batches in words. What is unknown is NA, or None in place of words."""
        import pandas as pd

        frames = [device.steps.to_pandas().assign(device=device.device) for device in self.full.devices]
        table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"phase": []})
        table["phase"] = [None if pd.isna(phase) else BATCH_PHASES[phase] for phase in table["phase"]]
        return table


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DeviceWorkView(View):
    """What the devices ran, kernel by kernel and by group; empty where the trace has no records of single kernels."""

    full: Summary

    def sheets(self) -> Iterable[Sheet]:
        return [device_work(device) for device in self.full.devices]

    def to_json(self) -> dict[str, Any]:
        """The kernels of each device, as in ``cbprof report --json``."""
        return {"devices": [{"device": each.device, "device_work": each.work_to_json()} for each in self.full.devices]}

    def __repr__(self) -> str:
        return counted(sum(len(device.work_to_json()) for device in self.full.devices), "kernel")

    def to_pandas(self) -> pd.DataFrame:
        """One row a device and kernel: ``name``, ``group``, ``total_ns``, ``per_step_ns``, ``count``, ``share_pct``."""
        import pandas as pd

        rows = [{"device": each.device} | kernel for each in self.full.devices for kernel in each.work_to_json()]
        return pd.DataFrame(rows, columns=["device", *WORK_COLUMNS])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PredictionView(View):
    """What the async order, or a change, would bring to ``measured``. ``full.trace`` is the predicted run.

    ``unchanged``: the same without the changes, where there are any.
    """

    name: str
    full: Prediction
    measured: Trace
    unchanged: Prediction | None = None

    def sheets(self) -> Iterable[Sheet]:
        return (figures_sheet(summarize(self.measured), self._cases()),)

    def to_rich(self) -> RenderableType:
        return predict_table(summarize(self.measured), self._cases(), title=self.name)

    def _cases(self) -> list[Case]:
        plainly = self.unchanged or self.full
        mode = plainly.what_if.mode
        cases = [("replayed" if mode == plainly.measured_mode else f"predicted {ORDERS[mode]}", plainly)]
        if self.unchanged is not None:
            cases.append(("what if", self.full))
        return [Case(name, each, summarize(each.trace)) for name, each in cases]

    def to_json(self) -> dict[str, Any]:
        return {"file": self.name, **self.full.to_json()}

    def plot(self, afterwards: Loaded | None = None) -> Figure:
        """Time of each step as measured, as predicted, and as measured ``afterwards``, if the change was made."""
        return prediction_chart(self.full, self.measured, None if afterwards is None else afterwards.trace)

    def __repr__(self) -> str:
        return f"predicted {duration(self.full.predicted_wall_ns)}, {ratio(self.full.speedup)} as fast as measured"

    def to_pandas(self) -> pd.DataFrame:
        """One row: the figures of ``cbprof predict --json``."""
        return one_row(self.full.to_json())


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TimelineView:
    """The interactive timeline, in a frame of the notebook. ``files``: what it was drawn from."""

    page: str
    files: tuple[Path, ...] = ()

    def save(self, path: str | Path) -> Path:
        """Write the page as a file of its own, whole or not at all. Raises UsageError on a disk error."""
        target = Path(path)
        write_whole(target, self.page.encode("utf-8"), "the timeline", of=self.files)
        return target

    def __repr__(self) -> str:
        return f"timeline, {counted(len(self.page), 'character')} of HTML; .save(path) writes it"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.page)}" width="100%" height="640" style="border: 0"></iframe>'
