"""Runs too long to ship every span: bins are exact, and single spans are there in a few stretches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from test_timeline import unpack
from timeline_samples import MS, long_trace, steady_trace

from cbprof.render.picture.scene import Scene, lane_order, scene
from cbprof.render.theme import STATES
from cbprof.render.web import viewer_coarse
from cbprof.render.web.viewer_coarse import coarse_document, stretches
from cbprof.render.web.viewer_data import run_document
from cbprof.render.web.viewer_gaps import LONGEST_ANYWHERE
from cbprof.trace import Kind, Lane, TraceBuilder

MOST, OPENING = 7000, 25_000 * MS


@pytest.fixture(scope="module")
def steady() -> Scene:
    return scene(steady_trace(5000))


def total(column: npt.NDArray[np.int64]) -> int:
    return int(column.sum())


def test_the_bins_hold_all_of_the_time(steady: Scene) -> None:
    found = coarse_document(steady, stretches(steady, MOST, OPENING), lane_order(steady.trace))
    edges = unpack(found["edges"])
    assert (edges[0], edges[-1]) == (0, steady.window.length_ns)
    [states] = [[unpack(column) for column in device] for device in found["devices"]]
    assert tuple(map(total, states)) == steady.devices[0].totals()
    np.testing.assert_array_equal(np.sum(states, axis=0), np.diff(edges))
    engine, h2d, compute, d2h = found["lanes"]
    assert {layer["name"]: total(unpack(layer["time"])) for layer in engine} == {
        "wait": 5000 * 68 * MS // 10, "schedule": 5000 * 15 * MS // 10, "update": 5000 * 7 * MS // 10,
        "launch": 5000 * 4 * MS // 10,
    }  # fmt: skip
    assert [total(unpack(lane[0]["time"])) for lane in (h2d, compute, d2h)] == [500 * MS, 34_500 * MS, 500 * MS]


def test_more_names_than_colours_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_coarse, "MOST_LAYERS", 3)
    seen = scene(long_trace(50))
    engine, *_ = coarse_document(seen, stretches(seen, MOST, 0), lane_order(seen.trace))["lanes"]
    assert [layer["name"] for layer in engine][-1] == "others"
    assert len(engine) == 4
    covered = seen.host.length_ns[seen.host.start < seen.window.end_ns].sum()
    assert sum(total(unpack(layer["time"])) for layer in engine) == pytest.approx(covered, rel=0.01)


def test_the_stretches_are_few_apart_and_hold_what_the_page_opens_on(steady: Scene) -> None:
    where = stretches(steady, MOST, OPENING)
    assert 1 < len(where.start) <= viewer_coarse.STRETCHES
    assert (where.start[1:] > where.end[:-1]).all()
    assert where.start[0] == steady.window.start_ns
    assert where.end[-1] == steady.window.end_ns
    assert any((where.start <= OPENING) & (where.end >= OPENING))
    assert len(where.rows(steady.trace)) <= 1.1 * MOST / 2


def test_only_what_lies_in_a_stretch_is_shipped(steady: Scene) -> None:
    found = run_document(steady, most_spans=MOST)
    assert found["coarse"]["stretches"][0][0] == 0
    assert sum(lane["count"] for lane in found["lanes"]) == found["spans"]["start"]["length"] < 5000
    assert found["devices"][0]["blame"] is None
    steps = unpack(found["steps"]["step"])
    assert (steps[0], steps[-1]) == (0, 4999)
    assert len(steps) < 600
    states = unpack(found["devices"][0]["states"]["state"])
    assert found["devices"][0]["gaps"]["start"]["length"] < 600
    assert (states == len(STATES)).sum() == len(found["coarse"]["stretches"])  # what follows a stretch is unknown


def test_the_longest_gaps_are_told_wherever_they_are() -> None:
    builder = TraceBuilder()
    for step in range(5000):
        at = 10 * MS * step + (50 * MS if step >= 1700 else 0)
        builder.span(builder.lane(Lane("engine")), Kind.CPU_WORK, "launch", at, MS, step=step)
        builder.span(builder.lane(Lane("compute", 0)), Kind.GPU_COMPUTE, "compute", at + MS, 8 * MS, step=step)
    found = run_document(scene(builder.build()), most_spans=1000)
    gaps = {key: unpack(column) for key, column in found["devices"][0]["gaps"].items()}
    longest = int(np.argmax(gaps["end"] - gaps["start"]))
    assert gaps["end"][longest] - gaps["start"][longest] == 52 * MS
    assert (gaps["step"][longest], gaps["span"][longest]) == (1700, -1)  # the span itself is not in the page
    assert len(gaps["span"]) <= 500 + LONGEST_ANYWHERE


def test_a_short_run_ships_everything() -> None:
    found = run_document(scene(steady_trace(50)))
    assert found["coarse"] is None
    assert found["spans"]["start"]["length"] == 350
    causes = [cause["label"] for cause in found["devices"][0]["blame"]["causes"]]
    assert causes[0] == "schedule"
