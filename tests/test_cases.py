"""Small traces with exact answers, from the symptoms of public bug reports: ``cbprof report --json`` gives them all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cbprof.cli.main import app

CASES = Path(__file__).parent / "data" / "cases"

TOLERANCE = Decimal("1e-6")  # microseconds, percentage points

# The report's key for a result of a case; others are the same but for the unit.
KEYS = {"gpu_busy_us": "busy_ns", "gpu_idle_us": "idle_ns"}
NOT_FIGURES = {"device", "window", "file", "policy", "reliable", "gaps_us", "host_overlap_us", "n_gaps", "idle_pct"}
# Of two files together, which `report` of one does not tell.
OF_TWO_RANKS = {"aligned_comm_start_skew_us", "aligned_comm_end_skew_us"}


def case_names() -> list[str]:
    return sorted(path.parent.name for path in CASES.glob("*/expected.json"))


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / case / "expected.json").read_text())
    return found


def report(path: Path, window: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["report", str(path), "--json", "--gaps", "all", "--window", window])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reports(case: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each result that a case expects, and the report that is to have it."""
    answer = expected(case)
    for result in answer["results"]:
        file = result.get("file", answer.get("input", "trace.json"))
        yield result, report(CASES / case / file, result["window"]["mode"])


def same(value: Any, wanted: Any, *, scale: int = 1) -> bool:
    """Whether a value, divided by ``scale``, is what is wanted, which may be written as a decimal."""
    if value is None or wanted is None or isinstance(wanted, bool):
        return value is wanted
    return abs(Decimal(str(value)) / scale - Decimal(str(wanted))) <= TOLERANCE


def check_figures(device: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    window = result["window"]
    start, end = device["window_ns"] or (None, None)
    assert same(start, window["start_us"], scale=1000)
    assert same(end, window["end_us"], scale=1000)
    for key in result.keys() - NOT_FIGURES:
        assert same(device[KEYS.get(key, f"{key.removesuffix('_us')}_ns")], result[key], scale=1000), key
    assert same(device["idle_pct"], result["idle_pct"])
    assert device["n_gaps"] == result["n_gaps"]
    for gap, (a, b) in zip(device["gaps"], result["gaps_us"], strict=True):
        assert same(gap["start_ns"], a, scale=1000)
        assert same(gap["end_ns"], b, scale=1000)
    for name, overlap in result.get("host_overlap_us", {}).items():
        assert same(device["host_overlap_ns"][name], overlap, scale=1000), name


@pytest.mark.parametrize("case", case_names())
def test_results_are_exact(case: str) -> None:
    for result, found in reports(case):
        if result["device"] is None:
            assert found["devices"] == []
            continue
        (device,) = (each for each in found["devices"] if each["device"] == result["device"])
        check_figures(device[result["policy"]] if "policy" in result else device, result)
        assert found["reliable"] == result.get("reliable", found["reliable"])


@pytest.mark.parametrize("case", case_names())
def test_checks_are_in_the_health(case: str) -> None:
    *_, (_, found) = reports(case)
    health = found["health"]
    checks = expected(case)["checks"]
    for key in checks.keys() - OF_TWO_RANKS - {"gap_causes"}:
        if isinstance(checks[key], list | dict):
            assert health[key] == checks[key], key
        else:
            assert same(health[key], checks[key]), key


@pytest.mark.parametrize("case", [name for name in case_names() if "gap_causes" in expected(name)["checks"]])
def test_causes_of_gaps_are_exact(case: str) -> None:
    *_, (_, found) = reports(case)
    gaps = [gap for device in found["devices"] for gap in device["gaps"]]
    for gap, cause in zip(gaps, expected(case)["checks"]["gap_causes"], strict=True):
        assert [gap["start_ns"] / 1000, gap["end_ns"] / 1000] == cause["gap"]
        for part in ("host_late", "in_launch", "queue"):
            assert same(gap[f"{part}_ns"], cause[f"{part}_us"], scale=1000), part
        assert sum(gap["blame_ns"].values()) == gap["host_late_ns"]
        if "host_exclusive_us" in cause:
            assert {name: ns / 1000 for name, ns in gap["blame_ns"].items()} == cause["host_exclusive_us"]
    assert [cause["gap"] for cause in found["health"]["gap_causes"]] == [
        [gap["start_ns"] / 1000, gap["end_ns"] / 1000] for gap in gaps
    ]
