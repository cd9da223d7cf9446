"""Runs held against earlier ones whose figures were kept in a small file, which can be committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from json import JSONDecodeError, dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from cbprof.analysis.gate.limits import LimitResult
from cbprof.analysis.gate.runs import Runs
from cbprof.errors import DataError
from cbprof.files import split_suffix, write_whole
from cbprof.render.sheet import Sheet
from cbprof.render.tables.compare import limits_sheet
from cbprof.render.tables.runs import changes_sheet, runs_json, runs_panel
from cbprof.render.views.examined import LimitsView
from cbprof.render.views.view import View

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BaselineView(View):
    """``runs``: of the baseline, and those held against it. ``files``: what was read."""

    name: str
    runs: tuple[Runs, Runs]
    limits: tuple[LimitResult, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def checked(self) -> LimitsView:
        """The limits, in the forms of ``cbprof check``."""
        return LimitsView(self.name, self.limits, self.files)

    @property
    def passed(self) -> bool:
        return self.checked.passed

    def sheets(self) -> Iterable[Sheet]:
        return (changes_sheet(*self.runs), limits_sheet(self.limits))

    def to_rich(self) -> RenderableType:
        return runs_panel(*self.runs, self.limits)

    def to_json(self) -> dict[str, Any]:
        return {"file": self.name, **runs_json(*self.runs), "fail_if": [limit._asdict() for limit in self.limits]}

    def __repr__(self) -> str:
        return repr(self.checked)

    def to_pandas(self) -> pd.DataFrame:
        """One row a figure."""
        import pandas as pd

        return pd.DataFrame([{"name": name, **(change or {})} for name, change in self.to_json()["changes"].items()])


def baseline_at(path: Path, name: str) -> Path:
    """The file: ``path``, or in that folder one of the trace's name."""
    return path / f"{split_suffix(Path(name).name)[0]}.json" if path.is_dir() else path


def write_baseline(runs: Runs, path: Path, *, of: Iterable[Path]) -> None:
    """Write the figures, whole or not at all. Raises :class:`CbprofError` where that fails."""
    write_whole(path, (dumps(runs.to_json(), indent=1) + "\n").encode(), "the baseline", of=of)


def read_baseline(path: Path) -> Runs:
    """Raises DataError where the file is missing, or no baseline."""
    try:
        said = loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; make it with `cbprof baseline save`") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the name") from error
    except (JSONDecodeError, UnicodeDecodeError, RecursionError):
        said = None  # which is no baseline either
    return Runs.parse(said, str(path))
