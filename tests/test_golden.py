"""Real traces of other engines and tools: exact figures that were worked out apart from cbprof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbprof.analysis.summary import summarize
from cbprof.errors import DataError
from cbprof.formats import load

TRACES = Path(__file__).parents[1].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not beside this checkout")


def golden() -> dict[str, Any]:
    path = TRACES / "public" / "golden.json"
    return json.loads(path.read_text()) if path.exists() else {}


def report(path: Path) -> dict[str, Any]:
    return summarize(load(path)).to_json(file=path.name, gaps="all")


@pytest.mark.parametrize("name", [name for name, answer in golden().items() if "devices" in answer])
def test_public_traces(name: str) -> None:
    found, wanted = report(TRACES / "public" / name), golden()[name]["devices"]
    assert {str(device["device"]) for device in found["devices"]} == set(wanted)
    for device in found["devices"]:
        answer = wanted[str(device["device"])]
        start, end = device["window_ns"]
        assert end - start == answer["window_ns"]
        assert device["busy_ns"] == answer["busy_ns"]
        assert device["n_gaps"] == answer["n_gaps"]
        assert device["sum_gpu_ns"] == answer["sum_ns"]
        assert device["n_gpu_events"] == answer.get("n_gpu", answer.get("n"))
        assert device["idle_pct"] == pytest.approx(answer["idle_pct"], abs=5e-5)
        gaps = device["gaps"]
        assert sum(gap["end_ns"] - gap["start_ns"] for gap in gaps) == device["idle_ns"]
        for gap in gaps:
            assert sum(gap["blame_ns"].values()) == gap["host_late_ns"]
    assert found["reliable"]


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(DataError, match="not a trace"):
        load(TRACES / "public" / "not_a_chrome_trace.json.gz")


@pytest.mark.parametrize(
    ("name", "n_events", "busy_ns", "window_ns"),
    [
        ("sync_graph_flash_window", 89_453, 758_311_256, 1_005_952_420),
        ("async_graph_flash_window", 111_991, 958_759_901, 1_018_361_549),
        ("sync_eager_sdpa_24tok", 43_333, 471_085_229, 2_441_695_675),
        ("async_eager_sdpa_24tok", 42_577, 590_346_433, 3_249_401_940),
    ],
)
def test_profiles_of_another_engine(name: str, n_events: int, busy_ns: int, window_ns: int) -> None:
    """The times of these files need 53 bits in nanoseconds. Sums of microseconds in float64 are off by up to 4 us."""
    (device,) = summarize(load(TRACES / "h200_transformers" / f"kineto_{name}.json.gz")).devices
    assert (device.n_gpu_events, device.busy_ns, device.window.length_ns) == (n_events, busy_ns, window_ns)


@pytest.mark.parametrize(
    ("name", "idle_pct"),
    [
        ("sync_graph_flash_window", 24.617425),
        ("async_graph_flash_window", 5.852363),
        ("sync_eager_sdpa_24tok", 80.706650),
        ("async_eager_sdpa_24tok", 81.832158),
    ],
)
def test_idle_of_another_engine(name: str, idle_pct: float) -> None:
    """The idle shares that a script found with times in float64 microseconds, so they hold to about 4e-4."""
    (device,) = summarize(load(TRACES / "h200_transformers" / f"kineto_{name}.json.gz")).devices
    assert device.idle_pct == pytest.approx(idle_pct, abs=4e-4)
