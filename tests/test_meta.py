"""What a trace says of itself: typed once, whatever a file holds, and nothing of it lost."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbprof.analysis.summary import summarize
from cbprof.formats import load
from cbprof.meta import Edge, Meta, ProfiledSteps, ThreadTime
from cbprof.render.evidence import in_a_sentence, in_short

WHOLE: dict[str, Any] = {
    "mode": "async",
    "engine": "cbprof reference",
    "evidence": "cuda_events",
    "device": "NVIDIA H200",
    "cuda_graphs": True,
    "model": "llama-1b",
    "dtype": "bfloat16",
    "torch": "2.9.1",
    "transformers": "5.17.0",
    "config": {"max_batch": 4},
    "workload": {"batch": 4, "seed": 0},
    "rank": 3,
    "world_size": 8,
    "base_time_ns": 1_790_000_000_000_000_000,
    "format": "kineto",
    "complete": False,
    "reliable": False,
    "warnings": ["the export is older"],
    "health": {"n_dropped": 3, "share": 0.5},
    "extent_ns": [0, 900],
    "device_names": {"0": "gpu-a"},
    "otherData": {"producer": "a tool"},
    "step_frames": ["ProfilerStep#1"],
    "steps_from": "graph launches",
    "steps_confidence": 0.98,
    "tokens": 64,
    "clock_error_ns": 7000,
    "device_error_ns": 1000,
    "edges": [{"event": "done", "recorded_on": "d2h", "waiter": "host", "steps_before": 0, "count": 9}],
    "threads": [{"lane": "engine", "run_ns": 70, "wait_ns": 30}],
    "cupti": {"file": "t.cupti.json.gz", "steps": [4, 8], "start_ns": 100, "end_ns": 300, "tokens": 16},
}
SAYS_NOTHING = Meta(evidence="unknown")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
anything = st.dictionaries(st.sampled_from(list(WHOLE)) | st.text(), json_values, max_size=8)


def test_every_field_of_a_file_is_typed() -> None:
    meta = Meta.parse(WHOLE)
    assert not meta.extra
    assert all(
        getattr(meta, each.name) != getattr(SAYS_NOTHING, each.name) for each in fields(Meta) if each.name != "extra"
    )
    assert (meta.extent_ns, meta.device_names, meta.step_frames) == ((0, 900), {0: "gpu-a"}, ("ProfilerStep#1",))
    assert meta.edges == (Edge("done", "d2h", "host", 0, 9),)
    assert meta.threads == (ThreadTime("engine", 70, 30),)
    assert meta.cupti == ProfiledSteps("t.cupti.json.gz", (4, 8), 100, 300, 16)
    assert meta.to_json() == WHOLE
    assert list(meta.to_json()) == list(WHOLE)


def test_evidence_is_required() -> None:
    with pytest.raises(TypeError, match="evidence"):
        Meta()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "said", [{}, {"evidence": None}, {"evidence": "unknown"}, {"evidence": "hearsay"}, {"evidence": 1}]
)
def test_without_a_known_word_the_evidence_is_unknown(said: dict[str, Any]) -> None:
    meta = Meta.parse(said)
    assert meta.evidence == "unknown"
    assert meta.extra == {key: value for key, value in said.items() if value not in (None, "unknown")}
    assert Meta.parse(meta.to_json()) == meta


def test_readers_say_that_evidence_is_unknown(tmp_path: Path) -> None:
    spans = [
        {"ph": "X", "cat": "cpu.work", "name": "launch", "pid": 0, "tid": 1, "ts": 0, "dur": 2},
        {"ph": "X", "cat": "gpu.compute", "name": "compute", "pid": 1, "tid": 1, "ts": 1, "dur": 5},
    ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": spans}))
    summary = summarize(load(tmp_path / "t.json"))
    assert summary.evidence == "unknown"
    assert any("does not say how it was measured" in warning for warning in summary.warnings)
    assert "unknown" in in_short("unknown", None)
    assert "unknown" in in_a_sentence("unknown", None)


WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("mode", "engine", "device", "model", "dtype", "torch", "transformers"), (7, ["x"], True)),
    **dict.fromkeys(("format", "steps_from"), (7, {"a": 1})),
    **dict.fromkeys(("cuda_graphs", "reliable"), ("yes", 2, [])),
    **dict.fromkeys(("config", "workload", "otherData", "health", "device_names"), ("x", 5, ["x"])),
    **dict.fromkeys(("rank", "world_size"), ("3", 1.5, True, 1 << 31)),
    **dict.fromkeys(("base_time_ns", "tokens"), ("3", 1.5, True, 1 << 63)),
    **dict.fromkeys(("clock_error_ns", "device_error_ns"), ("7", True, -1, float("inf"), 10**400, 1e300)),
    **dict.fromkeys(("warnings", "step_frames"), ("one", 5, {"a": 1})),
    "extent_ns": ([1], [1, 2, 3], [1, "2"], [0.5, 2], "ab", 5),
    "steps_confidence": ("0.9", True, float("inf"), [0.9]),
    **dict.fromkeys(("edges", "threads"), ("x", 5, {"count": 1})),
    "cupti": ("x", 5, [1]),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values], ids=repr
)
def test_a_value_of_the_wrong_type_is_kept_and_says_nothing(key: str, value: Any) -> None:
    meta = Meta.parse({key: value})
    assert meta == SAYS_NOTHING.changed(extra={key: value})
    assert meta.to_json() == {"complete": True, key: value}


@pytest.mark.parametrize("value", [None, "yes", 0, 1, [], {}])
def test_a_file_that_does_not_say_clearly_that_it_is_complete_is_not(value: Any) -> None:
    assert not Meta.parse({"complete": value}).complete
    assert Meta.parse({}).complete


def test_what_is_right_in_part_is_read_in_part_and_kept_whole() -> None:
    said = {
        "health": {"n_dropped": 2, "note": "x"},
        "device_names": {"0": "a", "one": "b", "9" * 5000: "c"},
        "edges": [{"event": "done", "count": 2}, 5, {"count": "many"}],
        "threads": [{"lane": "engine", "run_ns": 7, "wait_ns": 0}, 5, {"lane": "main", "run_ns": 7, "wait_ns": -1}],
        "cupti": {"steps": [1], "start_ns": 5, "end_ns": 9, "note": 1},
        "warnings": ["odd", 5],
    }
    meta = Meta.parse(said)
    assert (meta.health, meta.device_names, meta.warnings) == ({"n_dropped": 2}, {0: "a"}, ("odd",))
    assert meta.edges == (Edge("done", None, None, None, 2),)
    assert meta.threads == (ThreadTime("engine", 7, 0),)
    assert meta.cupti == ProfiledSteps(start_ns=5, end_ns=9)
    assert meta.to_json() == {"complete": True} | said


def test_what_is_changed_is_not_overruled_by_what_the_file_said() -> None:
    meta = Meta.parse({"health": {"note": "x"}, "otherData": 5, "note": 1})
    assert meta.changed(health={"n_dropped": 1}, other_data=None).to_json() == {
        "complete": True,
        "health": {"n_dropped": 1},
        "note": 1,
    }


@given(anything)
def test_anything_is_read_and_nothing_is_lost(said: dict[str, Any]) -> None:
    meta = Meta.parse(said)
    written = meta.to_json()
    again = Meta.parse(written).to_json()
    assert json.dumps(again, sort_keys=True) == json.dumps(written, sort_keys=True)  # as text: NaN is not equal to NaN
    unknown = {key: value for key, value in said.items() if key not in WHOLE}
    assert all(written[key] is value for key, value in unknown.items())


@given(st.dictionaries(st.sampled_from(list(WHOLE)) | st.text(), json_values, max_size=8))
def test_a_file_with_any_facts_is_read(tmp_path_factory: pytest.TempPathFactory, said: dict[str, Any]) -> None:
    span = {"ph": "X", "cat": "gpu.compute", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    path = tmp_path_factory.getbasetemp() / "facts.json"
    path.write_text(json.dumps({"cbprof": said | {"schema": 1}, "traceEvents": [span]}))
    assert summarize(load(path)).devices
