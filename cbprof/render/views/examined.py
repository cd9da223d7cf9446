"""What an examination found: two runs compared, limits, hazards, the health of a trace, ranks side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from cbprof.analysis.gate.compare import Comparison
from cbprof.analysis.gate.limits import LimitResult
from cbprof.analysis.gate.runs import Runs
from cbprof.analysis.hazards.hazards import Hazards
from cbprof.analysis.profiles.health import Health
from cbprof.analysis.ranks.report import RanksReport
from cbprof.numbers import counted
from cbprof.render.charts.run import states_chart
from cbprof.render.sheet import Sheet
from cbprof.render.tables import compare as comparison_sheets
from cbprof.render.tables.ci import github_annotation, write_junit
from cbprof.render.tables.hazards import hazard_table, rules_sheet
from cbprof.render.tables.health import health_sheet, health_table
from cbprof.render.tables.ranks import job_sheets, ranks_sheet, slow_sheet, write_ranks_csv
from cbprof.render.tables.runs import changes_sheet, runs_json, runs_panel
from cbprof.render.terminal.ranks import ranks_terminal
from cbprof.render.views.view import View, one_row
from cbprof.render.web.ranks_page import write_ranks_page

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

MOST_JOBS = 10


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ComparisonView(View):
    """Two runs of one workload. ``limits``: what was demanded of the change, and whether it was met.

    ``all_rows``: show every host phase. ``runs``: all runs before and after, where there are several; the two in detail
    are the median ones.
    """

    names: tuple[str, str]
    full: Comparison
    limits: tuple[LimitResult, ...] = ()
    all_rows: bool = False
    runs: tuple[Runs, Runs] | None = None

    @property
    def passed(self) -> bool:
        return all(limit.passed for limit in self.limits)

    def sheets(self) -> Iterable[Sheet]:
        if self.runs is not None:
            yield changes_sheet(*self.runs)
        yield from comparison_sheets.sheets(self.full, self.names, self.limits, all_rows=self.all_rows)

    def to_rich(self) -> RenderableType:
        limits = () if self.runs else self.limits
        detail = comparison_sheets.comparison_panels(self.full, self.names, limits, all_rows=self.all_rows)
        return detail if self.runs is None else Group(detail, runs_panel(*self.runs, self.limits))

    def to_json(self) -> dict[str, Any]:
        runs = {} if self.runs is None else {"runs": runs_json(*self.runs)}
        limits = [limit._asdict() for limit in self.limits]
        return self.full.to_json() | runs | {"files": self.names, "fail_if": limits}

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
class HazardsView(View):
    """Whether the orderings that batching one ahead rests on were kept. ``mode``: of the run."""

    name: str
    full: Hazards
    mode: str | None = None

    def sheets(self) -> Iterable[Sheet]:
        return (rules_sheet(self.full),)

    def to_rich(self) -> RenderableType:
        return hazard_table(self.full, title=self.name, mode=self.mode)

    def to_json(self) -> dict[str, Any]:
        return {"file": self.name, **self.full.to_json()}

    def __repr__(self) -> str:
        return "hazards found" if self.full.found else "no hazard found"

    def to_pandas(self) -> pd.DataFrame:
        """One row a rule."""
        import pandas as pd

        return pd.DataFrame(self.full.to_json()["rules"])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class HealthView(View):
    """Whether the figures of a trace can be trusted, and what speaks against it."""

    name: str
    full: Health

    @property
    def reliable(self) -> bool:
        return self.full.reliable

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.full.warnings

    def sheets(self) -> Iterable[Sheet]:
        return (health_sheet(self.full, title=self.name),)

    def to_rich(self) -> RenderableType:
        return health_table(self.full, title=self.name)

    def to_json(self) -> dict[str, Any]:
        return self.full.to_json(self.name)

    def __repr__(self) -> str:
        if self.reliable and not self.full.trace.devices:
            return "no GPU work was recorded"
        return "the figures can be trusted" if self.reliable else "; ".join(self.warnings)

    def to_pandas(self) -> pd.DataFrame:
        """One row: what was counted in the trace."""
        return one_row(self.full.counts)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LimitsView(View):
    """A run held against limits. ``files``: what was read."""

    name: str
    full: tuple[LimitResult, ...]
    files: tuple[Path, ...] = ()

    @property
    def passed(self) -> bool:
        return all(limit.passed for limit in self.full)

    def sheets(self) -> Iterable[Sheet]:
        return (comparison_sheets.limits_sheet(self.full),)

    def to_rich(self) -> RenderableType:
        return Group(*(Text(str(limit), overflow="fold") for limit in self.full))

    def to_json(self) -> dict[str, Any]:
        return {"file": self.name, "passed": self.passed, "limits": [limit._asdict() for limit in self.full]}

    def to_github(self) -> str:
        """One annotation of a GitHub workflow a limit."""
        return "\n".join(github_annotation(limit, self.name) for limit in self.full)

    def write_junit(self, target: Path) -> None:
        """Write one test case a limit as JUnit XML. Raises UsageError where that fails."""
        write_junit(self.full, self.name, target, of=self.files)

    def __repr__(self) -> str:
        return "; ".join(str(limit) for limit in self.full)

    def to_pandas(self) -> pd.DataFrame:
        """One row a limit."""
        import pandas as pd

        return pd.DataFrame([limit._asdict() for limit in self.full])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RanksView(View):
    """The ranks of a job, or of many, side by side."""

    full: RanksReport

    def sheets(self) -> Iterable[Sheet]:
        return (ranks_sheet(self.full), slow_sheet(self.full), *job_sheets(self.full, MOST_JOBS))

    def to_rich(self) -> RenderableType:
        return ranks_terminal(self.full)

    def to_json(self) -> dict[str, Any]:
        return self.full.to_json()

    def write_csv(self, target: Path) -> None:
        """Write one row a rank."""
        write_ranks_csv(self.full, target, of=self._files())

    def write_page(self, target: Path) -> None:
        """Write the page that ``cbprof fleet --output`` writes."""
        write_ranks_page(self.full, target, of=self._files())

    def _files(self) -> list[Path]:
        return [Path(file.name) for file in (*(row.file for row in self.full.rows), *self.full.failed)]

    def __repr__(self) -> str:
        return f"{counted(len(self.full.rows), 'rank')} in {counted(self.full.n_files, 'file')}"

    def to_pandas(self) -> pd.DataFrame:
        """One row a rank, and one a file that could not be used, with its ``reason``."""
        import pandas as pd

        return pd.DataFrame(self.to_json()["ranks"])
