"""The notebooks are committed without outputs, and run from top to bottom."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ANALYSIS = ["01_idle_time.ipynb", "02_what_if.ipynb", "03_your_engine.ipynb"]
"""Those that take seconds and no torch. The lab's has a test of its own, tests/test_lab.py."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_outputs_are_committed(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def executed(name: str) -> list[dict[str, Any]]:
    """The cells of a notebook after all of them ran in a fresh kernel, in the notebook's folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own making
        nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
        pytest.importorskip("ipykernel")
        notebook = nbformat.read(FOLDER / name, as_version=4)
        nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
    cells: list[dict[str, Any]] = notebook.cells
    return cells


def printed(cells: list[dict[str, Any]]) -> str:
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("name", ANALYSIS)
def test_a_notebook_runs_and_draws(name: str) -> None:
    cells = executed(name)
    drawn = [output["data"] for cell in cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("text/html" in data for data in drawn) >= 2
    if name == "02_what_if.ipynb":
        assert "predicted 74." in printed(cells)
        assert "error +0.86 %" in printed(cells)
