"""What a notebook shows of an analysis: small frozen objects that draw themselves, and become data frames.

Each holds the analysis' own result in full, for whatever else is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cbprof.analysis.gate.compare import Comparison
from cbprof.analysis.hazards.hazards import Hazards
from cbprof.analysis.predict.predict import Prediction
from cbprof.analysis.summary import Summary
from cbprof.analysis.verdict.verdict import Verdict
from cbprof.numbers import count, duration, percent, ratio
from cbprof.render.charts.run import gap_chart, states_chart
from cbprof.render.charts.steps import prediction_chart
from cbprof.render.sheet import Sheet
from cbprof.render.tables import compare as comparison_sheets
from cbprof.render.tables import summary_sheets
from cbprof.trace import BATCH_PHASES, Trace

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

ROWS_SHOWN = 10


class Loaded(Protocol):
    """What ``cbprof.load`` returns."""

    @property
    def trace(self) -> Trace: ...


class _View:
    """Something that a notebook shows as a few tables."""

    __slots__ = ()

    def sheets(self) -> Iterable[Sheet]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return "".join(sheet.to_html() for sheet in self.sheets() if sheet.rows)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SummaryView(_View):
    """The figures of a trace. ``full``: all of them."""

    name: str
    full: Summary

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
        return summary_sheets.key_figures(self.full, self.name), summary_sheets.causes(self.full)

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
class GapsView(_View):
    """When the devices had nothing to run, and why."""

    full: Summary

    def sheets(self) -> Iterable[Sheet]:
        return [summary_sheets.gap_lengths(device) for device in self.full.devices if device.idle_ns is not None]

    def plot(self) -> Figure:
        """Idle time by the length of the gap and by cause."""
        return gap_chart(self.full)

    def __repr__(self) -> str:
        return f"{sum(len(device.gaps) for device in self.full.devices):,} gaps"

    def to_pandas(self) -> pd.DataFrame:
        """One row a gap; a column ``blame.CAUSE`` for each cause, in nanoseconds, whose sum is ``length_ns``."""
        import pandas as pd

        frames = []
        for device in self.full.devices:
            gaps, blame = device.gaps, device.blame
            columns: dict[str, Any] = {
                "device": np.full(len(gaps), device.device),
                "step": gaps.step,
                "start_ns": gaps.start,
                "length_ns": gaps.length_ns,
            }
            for row in range(len(blame)):
                column = columns.setdefault(f"blame.{blame.label(row)}", np.zeros(len(gaps), dtype=np.int64))
                column[blame.gap[row]] += blame.ns[row]
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True).fillna(0) if frames else pd.DataFrame()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StepsView(_View):
    """What each step cost the host and the device."""

    full: Summary

    def sheets(self) -> Iterable[Sheet]:
        for device in self.full.devices:
            steps = device.steps
            rows = [
                (
                    f"step {steps.step[row]}",
                    duration(int(steps.period_ns[row])),
                    duration(int(steps.cpu_work_ns[row])),
                    duration(int(steps.cpu_exposed_ns[row])),
                    duration(int(steps.compute_ns[row])),
                    duration(int(steps.gap_ns[row])),
                )
                for row in range(min(ROWS_SHOWN, len(steps)))
            ]
            title = f"the first of {len(steps):,} steps on GPU {device.device}"
            yield Sheet(("", "period", "host work", "exposed", "compute", "gap before"), rows, title)

    def __repr__(self) -> str:
        return f"{self.full.n_steps:,} steps"

    def to_pandas(self) -> pd.DataFrame:
        """One row a step and device; phases of batches in words, None where unknown."""
        import pandas as pd

        frames = [device.steps.to_pandas().assign(device=device.device) for device in self.full.devices]
        table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"phase": []})
        table["phase"] = [BATCH_PHASES[phase] if phase >= 0 else None for phase in table["phase"]]
        return table


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PredictionView(_View):
    """What the async order, or a change, would bring to ``measured``. ``full.trace`` is the predicted run."""

    full: Prediction
    measured: Trace

    def sheets(self) -> Iterable[Sheet]:
        found = self.full
        rows = [
            ("wall time", duration(found.measured_wall_ns), duration(found.predicted_wall_ns)),
            ("GPU idle", percent(found.measured_idle_pct), percent(found.predicted_idle_pct)),
            ("as fast", "", ratio(found.speedup)),
            ("steps held up by the host", "", count(len(found.host_bound_steps))),
        ]
        return [Sheet(("", f"measured {found.measured_mode or 'run'}", "predicted"), rows, "", found.notes)]

    def plot(self, afterwards: Loaded | None = None) -> Figure:
        """Time of each step as measured, as predicted, and as measured ``afterwards``, if the change was made."""
        return prediction_chart(self.full, self.measured, None if afterwards is None else afterwards.trace)

    def __repr__(self) -> str:
        return f"predicted {duration(self.full.predicted_wall_ns)}, {ratio(self.full.speedup)} as fast as measured"

    def to_pandas(self) -> pd.DataFrame:
        """One row: the figures of ``cbprof predict --json``."""
        return _one_row(self.full.to_json())


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ComparisonView(_View):
    """Two runs of one workload."""

    names: tuple[str, str]
    full: Comparison

    def sheets(self) -> Iterable[Sheet]:
        return (
            comparison_sheets.figures(self.full, self.names),
            comparison_sheets.ratios(self.full),
            comparison_sheets.differences(self.full),
            comparison_sheets.phases(self.full),
        )

    def plot(self) -> Figure:
        """The states of both runs, as shares of their time."""
        names = self.names if self.names[0] != self.names[1] else ("before", "after")
        return states_chart(dict(zip(names, (self.full.before, self.full.after), strict=True)))

    def __repr__(self) -> str:
        change = "unknown" if self.full.slower is None else comparison_sheets.interval(self.full.slower)
        return f"{self.names[1]} takes {change} of the time of {self.names[0]}"

    def to_pandas(self) -> pd.DataFrame:
        """One row a host phase, per step."""
        import pandas as pd

        return pd.DataFrame(self.full.to_json()["phases"])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class HazardsView(_View):
    """Whether the orderings that batching one ahead rests on were kept."""

    full: Hazards

    def sheets(self) -> Iterable[Sheet]:
        rows = [
            (
                result.rule.text,
                count(result.n_pairs),
                "" if result.worst_margin_ns is None else summary_sheets.signed_duration(result.worst_margin_ns),
                result.verdict.value,
            )
            for result in self.full.rules
        ]
        return [Sheet(("what must come first", "pairs", "least margin", "hazard"), rows)]

    def __repr__(self) -> str:
        return "hazards found" if self.full.found else "no hazard found"

    def to_pandas(self) -> pd.DataFrame:
        """One row a rule."""
        import pandas as pd

        return pd.DataFrame(self.full.to_json()["rules"])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TimelineView:
    """The interactive timeline, in a frame of the notebook."""

    page: str

    def save(self, path: str | Path) -> Path:
        """Write the page as a file of its own."""
        target = Path(path)
        target.write_text(self.page, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"timeline, {len(self.page):,} characters of HTML; .save(path) writes it"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.page)}" width="100%" height="640" style="border: 0"></iframe>'


def _one_row(facts: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([{key: value for key, value in facts.items() if not isinstance(value, (dict, list))}])
