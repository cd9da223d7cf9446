"""The requests of a run, slowest first, or one of them token by token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from cbprof.analysis.requests.lives import Life
from cbprof.files import write_table
from cbprof.numbers import counted
from cbprof.render.sheet import MOST_ROWS, Sheet
from cbprof.render.tables.requests import csv_rows, latency_sheet, parts_sheet, tokens_sheet, waits_sheet
from cbprof.render.views.view import View

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1


@dataclass(frozen=True, slots=True, eq=False)
class RequestsView(View):
    """``lives``: the longest first. ``request``: the only one to show, token by token. ``all_rows``: show all."""

    name: str
    lives: tuple[Life, ...]
    request: int | None = None
    files: tuple[Path, ...] = ()
    all_rows: bool = False

    def sheets(self) -> Iterable[Sheet]:
        if self.request is not None:
            for life in self.lives:
                yield parts_sheet(life)
                yield tokens_sheet(life)
            return
        shown = self.lives if self.all_rows else self.lives[:MOST_ROWS]
        others = len(self.lives) - len(shown)
        note = (f"and {counted(others, 'other')}: --all shows them",) if others else ()
        yield latency_sheet(shown)
        yield replace(waits_sheet(shown), notes=note)

    def to_rich(self) -> RenderableType:
        sheets = list(self.sheets())
        parts: list[RenderableType] = []
        for sheet in sheets:
            parts += [*([""] if parts else []), sheet.to_rich(), *map(Text, sheet.notes)]
        return Group(*parts)

    def to_json(self) -> dict[str, Any]:
        requests = [life.to_json() for life in self.lives]
        if self.request is not None:
            for facts, life in zip(requests, self.lives, strict=True):
                facts["token_gaps"] = [gap._asdict() for gap in life.gaps]
        return {"schema": SCHEMA, "file": self.name, "requests": requests}

    def write_csv(self, target: Path) -> Path:
        """Write one row a request. Raises CbprofError where the file cannot be written."""
        header, rows = csv_rows(self.lives)
        write_table(target, header, rows, "the requests", of=self.files)
        return target

    def to_pandas(self) -> pd.DataFrame:
        """One row a request; its parts are columns."""
        import pandas as pd

        header, rows = csv_rows(self.lives)
        return pd.DataFrame(list(rows), columns=list(header))
