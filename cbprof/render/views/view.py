"""What all views have: tables, and forms of them for a notebook, a terminal and a pull request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType

from cbprof.render.sheet import Sheet

if TYPE_CHECKING:
    import pandas as pd


class View(ABC):
    """One result. A kind of view says what its tables are, and has forms of its own where tables are not enough."""

    __slots__ = ()

    @abstractmethod
    def sheets(self) -> Iterable[Sheet]:
        """The tables of a notebook and of a pull request."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain data with stable keys, as the command line prints with ``--json``."""

    def to_rich(self) -> RenderableType:
        """What :meth:`print` shows."""
        return Group(*(sheet.to_rich() for sheet in self.sheets() if sheet.rows))

    def print(self) -> None:
        """Show the result on the terminal, as wide as it is."""
        Console().print(self.to_rich(), crop=False)

    def to_markdown(self) -> str:
        """The tables for a pull request."""
        return "\n".join(sheet.to_markdown() for sheet in self.sheets() if sheet.rows)

    def _repr_html_(self) -> str:
        return "".join(sheet.to_html() for sheet in self.sheets() if sheet.rows)


def one_row(facts: Mapping[str, Any]) -> pd.DataFrame:
    """The plain figures among ``facts``, as a data frame of one row."""
    import pandas as pd

    return pd.DataFrame([{key: value for key, value in facts.items() if not isinstance(value, (dict, list))}])
