"""Narrow terminals: names before numbers, and neither broken in the middle."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from command_line import cbprof
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from cbprof.render.figures import Figures
from cbprof.render.sheet import Sheet


def shown(table: Figures, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return file.getvalue()


SHEET = Sheet(("cause", "per step", "in all", "of idle"), [("prepare inputs", "700.1 us", "359.2 ms", "41.29 %")])


def test_a_wide_terminal_has_columns() -> None:
    head, row = shown(SHEET.to_rich(), 60).splitlines()
    assert (head.split()[0], row.rstrip().endswith("41.29 %"), row.startswith("prepare inputs")) == (
        "cause",
        True,
        True,
    )


def test_a_narrow_one_has_the_figures_below_the_name() -> None:
    assert [line.rstrip().replace("\u00a0", " ") for line in shown(SHEET.to_rich(), 34).splitlines()] == [
        "cause",
        "    per step  in all  of idle",
        "prepare inputs",
        "    700.1 us  359.2 ms  41.29 %",
    ]


@given(st.integers(30, 100), st.lists(st.text("abc", min_size=1, max_size=16), min_size=1, max_size=4))
def test_no_name_is_broken_at_any_width(width: int, names: list[str]) -> None:
    table = Figures([Text("name"), Text("in all"), Text("share")])
    for name in names:
        table.add_row(Text(name), "359.2 ms", "41.29 %")
    words = shown(table, width).replace("\u00a0", " ").split()
    assert [word for word in words if word in names] == names
    assert words.count("41.29") == len(names)


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_the_list_of_experiments_fits(columns: int, tmp_path: Path) -> None:
    lines = cbprof("lab", "--list", cwd=tmp_path, columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert {"turns", "streams", "async"} <= {line.split()[0] for line in lines if not line.startswith(" ")}
