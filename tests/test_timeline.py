"""The page of the timeline as text: what it holds, how small it is, that nothing in a trace can break out of it."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timeline_samples import HOSTILE_NAMES, hostile_trace, long_trace, steady_trace
from trace_samples import traces

from cbprof.analysis.accounting.gaps import find_gaps
from cbprof.errors import CbprofError, DataError
from cbprof.render.picture.scene import StepBounds, first_view, scene
from cbprof.render.theme import STATES, phase_colors
from cbprof.render.views.run import TimelineView
from cbprof.render.web.timeline import timeline_html
from cbprof.render.web.viewer_columns import LARGEST, PackedColumn, edges_of, pack, pack_instants
from cbprof.trace import Kind, Lane, Trace, TraceBuilder


def unpack(column: PackedColumn) -> npt.NDArray[np.int64]:
    """What ``viewer/columns.js`` does, in Python integers."""
    planes = zlib.decompress(base64.b64decode(column["data"]))
    length = column["length"]
    zigzag = [sum(planes[k * length + i] << 8 * k for k in range(column["width"])) for i in range(length)]
    values = np.array([-(z + 1) // 2 if z % 2 else z // 2 for z in zigzag], dtype=np.int64)
    return np.cumsum(values) if column["delta"] else values


def instants(run: dict, column: PackedColumn) -> list[int]:
    """Instants of a run, which may be places among the edges of its spans."""
    start, dur = (unpack(run["spans"][key]) for key in ("start", "dur"))
    edges = edges_of(start, dur, run["length"])
    return (edges[unpack(column)] if column.get("edges") else unpack(column)).tolist()


def document(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@given(values=st.lists(st.integers(-LARGEST, LARGEST), max_size=30), delta=st.booleans())
def test_columns_survive_the_round_trip(values: list[int], delta: bool) -> None:
    column = pack(np.array(values, dtype=np.int64), delta=delta)
    assert unpack(column).tolist() == values
    assert 256 ** (column["width"] - 1) <= 2**53


def test_instants_are_places_among_edges_where_all_of_them_are_edges() -> None:
    edges = np.array([0, 3, 10, 11])
    assert unpack(pack_instants(np.array([3, 3, 11]), edges)).tolist() == [1, 1, 3]
    other = pack_instants(np.array([3, 4, 12]), edges)
    assert (unpack(other).tolist(), "edges" in other) == ([3, 4, 12], False)


def test_the_page_knows_each_gap_and_how_it_lay_around_its_launch() -> None:
    trace = steady_trace(steps=3)
    [run] = document(timeline_html(trace))["runs"]
    gaps = {key: instants(run, column) for key, column in run["devices"][0]["gaps"].items()}
    names, launch = unpack(run["spans"]["name"]), unpack(run["spans"]["launch"])

    def named(span: int) -> str:
        return run["names"][names[span]] if span >= 0 else ""

    found = find_gaps(trace, scene(trace).devices[0], scene(trace).host)
    assert (gaps["start"], gaps["end"]) == (found.start.tolist(), found.end.tolist())
    assert [named(span) for span in gaps["span"]] == ["compute", "compute", "compute", ""]
    assert [named(span) for span in gaps["launch"]] == ["launch", "launch", "launch", ""]
    assert [named(launch[span]) for span in gaps["span"][:3]] == ["launch"] * 3
    assert np.subtract(gaps["launched"], gaps["start"]).tolist() == found.host_late_ns.tolist()
    assert np.subtract(gaps["end"], gaps["queued"]).tolist() == found.queue_ns.tolist()


def test_a_value_that_a_browser_would_round_is_refused() -> None:
    with pytest.raises(DataError, match="26 days"):
        pack(np.array([LARGEST + 1]))


def test_the_page_holds_every_span_and_state_to_the_nanosecond() -> None:
    trace = steady_trace(steps=5)
    page = timeline_html(trace)
    [run] = document(page)["runs"]
    assert "<title>GPU idle 30.30 % of 49.50 ms</title>" in page
    assert (run["length"], run["subtitle"]) == (49_500_000, "sync · a test")
    assert [(lane["name"], lane["count"]) for lane in run["lanes"]] == [
        ("engine", 20),
        ("h2d", 5),
        ("compute", 5),
        ("d2h", 5),
    ]
    start, dur, name = (unpack(run["spans"][key]) for key in ("start", "dur", "name"))
    found = sorted(zip(start.tolist(), dur.tolist(), (run["names"][i] for i in name), strict=True))
    names = [trace.name_of(i) for i in range(len(trace))]
    assert found == sorted(zip(trace.start_ns.tolist(), trace.dur_ns.tolist(), names, strict=True))

    [device] = run["devices"]
    edges = [*instants(run, device["states"]["start"]), run["length"]]
    length = np.bincount(unpack(device["states"]["state"]), weights=np.diff(edges), minlength=len(STATES))
    assert dict(zip(STATES, length, strict=True)) == {
        "overlap": 5 * 200_000,
        "gpu_only": 5 * 6_700_000,
        "untraced_active": 0,
        "untraced_idle": 0,
        "cpu_only": 5 * 2_400_000,
        "neither": 5 * 200_000 + 4 * 500_000,
    }
    steps = {key: instants(run, column) for key, column in run["steps"].items()}
    assert steps["context"] == [128, 160, 192, 224, 256]
    assert (steps["start"][2], steps["end"][2]) == (20_000_000, 29_500_000)


def test_the_first_view_shows_typical_steps_and_not_the_capture() -> None:
    length = np.full(101, 10_000)
    length[49:51] = 60_000  # a pause in the very middle
    start = np.concatenate(([0], np.cumsum(length)))[:-1]
    steps = StepBounds(np.arange(101), start, start + 9_000, start + 4_500)
    a, b = first_view(steps, int(length.sum()))
    assert 40_000 < b - a < 42_000
    assert 0.35 < a / length.sum() < 0.65

    few = StepBounds(np.arange(3), start[:3], start[:3] + 9_000, start[:3] + 4_500)
    assert first_view(few, 30_000) == (0, 30_000)


def test_steps_that_begin_at_one_instant_still_give_a_view() -> None:
    steps = StepBounds(np.arange(9), np.zeros(9, dtype=np.int64), np.full(9, 100), np.full(9, 50))
    assert first_view(steps, 100) == (0, 0)


def test_names_cannot_break_out_of_the_page() -> None:
    page = timeline_html(hostile_trace(), title="</title><script>alert(1)</script>")
    assert page.count("</script>") == 2  # the data and the viewer
    assert "<script>alert" not in page
    assert "&lt;/title&gt;&lt;script&gt;" in page
    assert document(page)["runs"][0]["names"] == list(HOSTILE_NAMES)
    page.encode("utf-8")


def test_the_page_needs_no_network() -> None:
    page = timeline_html(steady_trace(steps=3))
    assert not re.search(r"https?://|//cdn|@import|<link(?! rel=\"icon\" href=\"data:,\")|\bsrc=", page)
    assert "default-src 'none'" in page
    assert "{{" not in page


def test_8192_steps_fit_in_two_megabytes() -> None:
    trace = long_trace(steps=8192)
    assert len(trace) == 8192 * 14
    assert len(timeline_html(trace)) < 2_000_000


@given(trace=traces())
def test_any_trace_gives_a_page_or_one_clear_line(trace: Trace) -> None:
    page = problem = ""
    try:
        page = timeline_html(trace, other=trace)
    except DataError as error:
        problem = str(error)
    assert len(problem.splitlines()) == (0 if page else 1)
    assert not page or len(document(page)["runs"]) == 2
    page.encode("utf-8")


@pytest.mark.parametrize(
    ("spans", "title"),
    [
        ([], "Empty trace: no spans"),
        ([(-1, Kind.CPU_WORK, 0, 1_500_000)], "No GPU activity recorded in 1.500 ms"),
        ([(0, Kind.GPU_COMPUTE, 5, 1000)], "GPU idle 0.00 % of 1.000 us"),
        (
            [(0, Kind.GPU_COMPUTE, 0, 500), (1, Kind.GPU_COMPUTE, 0, 1000)],
            "GPU 0 idle 50.00 %, GPU 1 idle 0.00 % of 1.000 us",
        ),
    ],
)
def test_titles_of_small_traces(spans: list[tuple[int, Kind, int, int]], title: str) -> None:
    builder = TraceBuilder()
    for device, kind, start, dur in spans:
        builder.span(builder.lane(Lane("lane", device)), kind, "work", start, dur)
    assert document(timeline_html(builder.build()))["runs"][0]["title"] == title


def test_a_run_that_was_cut_short_says_so() -> None:
    trace = steady_trace(steps=2, complete=False)
    assert document(timeline_html(trace))["runs"][0]["subtitle"].endswith("cut short")


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    trace = steady_trace(steps=2)
    page = tmp_path / "page.html"
    page.write_text("old")
    TimelineView(timeline_html(trace, title="two steps")).save(page)
    assert "<title>two steps</title>" in page.read_text(encoding="utf-8")
    for impossible in (tmp_path / "missing" / "page.html", tmp_path, page / "below.html"):
        with pytest.raises(CbprofError, match="cannot write the timeline") as caught:
            TimelineView(timeline_html(trace)).save(impossible)
        assert len(str(caught.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_name_has_one_color_everywhere() -> None:
    first = phase_colors(["schedule", "mine", "compute", "other"])
    assert first[0] == phase_colors(["schedule"])[0]
    assert len(set(first)) == 4
    assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in phase_colors(map(str, range(30))))
