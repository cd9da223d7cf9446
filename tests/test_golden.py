"""Real traces of other engines and tools: exact figures that were worked out apart from cbprof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbprof.analysis.summary import summarize
from cbprof.errors import DataError
from cbprof.formats import load

TRACES = Path(__file__).parent / "data"

# A collective whose launch is not recorded; a host without a device; two files out of which records were cut.
DOUBTFUL = {
    "hta_large_integer.json.gz",
    "hta_cpu_only.json.gz",
    "hta_sampled_rank0.json.gz",
    "tracelens_sglang_qwen3_8b_decode_mi300x.json.gz",
}


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRACES / "public" / "golden.json").read_text())
    return found


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
    assert found["reliable"] == (name not in DOUBTFUL)


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(DataError, match="not a trace"):
        load(TRACES / "public" / "not_a_chrome_trace.json.gz")


@pytest.mark.parametrize(
    ("name", "n_events", "busy_ns", "window_ns"),
    [
        ("sync_graph", 18_192, 154_108_309, 204_617_437),
        ("async_graph", 16_600, 141_387_039, 159_575_971),
        ("sync_eager", 16_387, 130_718_459, 949_814_948),
    ],
)
def test_profiles_of_another_engine(name: str, n_events: int, busy_ns: int, window_ns: int) -> None:
    """The times of these files need 53 bits in nanoseconds. Sums of microseconds in float64 are off by up to 4 us."""
    (device,) = summarize(load(TRACES / "h200_transformers" / f"kineto_{name}.json.gz")).devices
    assert (device.n_gpu_events, device.busy_ns, device.window.length_ns) == (n_events, busy_ns, window_ns)
