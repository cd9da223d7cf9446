"""Which code cost the GPU its time: every nanosecond of idle time is in one cell, below what called it."""

from __future__ import annotations

from pathlib import Path

from command_line import cbprof
from hypothesis import given
from kineto_samples import annotation, call, host, kernel, write
from oracle import COMPUTE, ENGINE, Row, trace_of, traces

import cbprof as api
from cbprof.analysis.accounting.cut_out import without_profiled_steps
from cbprof.analysis.summary import summarize
from cbprof.render.charts.flame import LESS, MORE, NO_SPAN, SAME, flame_chart, flame_of
from cbprof.trace import NONE, Kind, Trace


def profile(folder: Path, *, schedule_us: int = 300, name: str = "sample.json") -> Path:
    """Two kernels; between them the host prepares, schedules, leaves no record, and launches."""
    at = 720 + schedule_us
    return write(
        folder,
        kernel(-10, 10),
        host(0, 700, "lib/work.py(30): prepare"),
        host(100, 200, "lib/work.py(50): pad"),
        host(150, 50, "aten::copy_"),
        annotation(700, schedule_us, "schedule"),
        call(at, 10, "cudaLaunchKernel", 1),
        kernel(at + 15, 10, correlation=1),
        name=name,
    )


def test_each_cell_stands_below_what_called_it(tmp_path: Path) -> None:
    flame = flame_of(api.load(profile(tmp_path)).trace)
    assert [(*cell.path, cell.start_ns, cell.ns, cell.own_ns) for cell in flame.cells] == [
        ("work.prepare", 0, 700_000, 500_000),
        ("work.prepare", "work.pad", 0, 200_000, 150_000),
        ("work.prepare", "work.pad", "aten::copy_", 0, 50_000, 50_000),
        ("schedule", 700_000, 300_000, 300_000),
        ("(host time without a record)", 1_000_000, 20_000, 20_000),
        ("cudaLaunchKernel", 1_020_000, 10_000, 10_000),
        ("its turn in the queue", 1_030_000, 5_000, 5_000),
    ]
    assert flame.idle_ns == 1_035_000


@given(traces())
def test_all_idle_time_is_there_once(trace: Trace) -> None:
    device = summarize(trace).most_idle
    flame = flame_of(trace)
    idle_ns = device.idle_ns or 0 if device else 0
    assert flame.idle_ns == idle_ns == sum(cell.own_ns for cell in flame.cells)
    for place, cell in enumerate(flame.cells):
        below = [each for each in flame.cells[place + 1 :] if each.path[:-1] == cell.path and each.start_ns < end(cell)]
        children = [each for each in below if each.start_ns >= cell.start_ns]
        assert cell.ns == cell.own_ns + sum(each.ns for each in children)
    if device and idle_ns:
        assert in_code(trace) == sum(cell.own_ns for cell in flame.cells if cell.depth or cell.name not in NO_SPAN)


def end(cell: object) -> int:
    return cell.start_ns + cell.ns  # type: ignore[attr-defined, no-any-return]


def in_code(trace: Trace) -> int:
    """Idle time that one host span is to blame for: gap by gap, cause by cause."""
    device = summarize(without_profiled_steps(trace)).most_idle
    assert device is not None
    total = 0
    for gap in range(len(device.gaps)):
        for part in device.blame.of_gap(gap):
            launched = part.label == "launch" and part.cause.name == "LAUNCH" and device.gaps.launch[gap] != NONE
            total += part.ns if part.cause.name == "PHASE" or launched else 0
    return total


def steps(host_ns: int) -> Trace:
    rows: list[Row] = []
    for step in range(3):
        at = step * (host_ns + 50)
        rows += [
            (ENGINE, Kind.CPU_WORK, "prepare", at, at + host_ns, step),
            (ENGINE, Kind.CPU_WORK, "launch", at + host_ns, at + host_ns + 10, step),
            (COMPUTE, Kind.GPU_COMPUTE, "compute", at + host_ns + 10, at + host_ns + 50, step),
        ]
    return trace_of(*rows, evidence="cuda_events")


def test_of_two_traces_the_colour_says_what_changed() -> None:
    figure = flame_chart(flame_of(steps(100)), flame_of(steps(60)))
    before, after = figure.data
    assert [before.marker.color[at] for at in range(2)] == [LESS, SAME]
    assert list(after.marker.color) == list(before.marker.color)
    assert (before.x[0], after.x[0]) == (100 / 1e6, 60 / 1e6)  # milliseconds a step
    assert flame_chart(flame_of(steps(60)), flame_of(steps(100))).data[0].marker.color[0] == MORE


def test_a_trace_without_idle_time_says_so() -> None:
    trace = trace_of((COMPUTE, Kind.GPU_COMPUTE, "compute", 0, 9, 0), evidence="cuda_events")
    assert "no code to blame" in flame_chart(flame_of(trace)).layout.annotations[0].text


def test_names_from_files_break_out_of_nothing(tmp_path: Path) -> None:
    name = "</script><b>x"
    launch = (call(9, 1, "cudaLaunchKernel", 1), kernel(10, 5, correlation=1))
    write(tmp_path, kernel(-10, 10), host(0, 9, name), *launch)
    cbprof("plot", "--flame", "--no-open", "sample.json", cwd=tmp_path)
    page = (tmp_path / "sample.flame.html").read_text(encoding="utf-8")
    assert (name in page, "<b>x" in page) == (False, False)


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    profile(tmp_path)
    profile(tmp_path, schedule_us=100, name="after.json")
    told = cbprof("plot", "sample.json", "after.json", "--flame", "-o", "flame.html", "--no-open", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (0, "wrote flame.html\n")
    page = (tmp_path / "flame.html").read_text(encoding="utf-8")
    assert "work.prepare" in page
    assert "sample.json (1.035 ms idle) and after.json (835.0 us idle)" in page
    assert "https://" not in page.partition("<script>/**")[0]
    refused = cbprof("plot", "sample.json", "--flame", "-o", "flame.png", cwd=tmp_path)
    assert (refused.returncode, "ends in .html" in refused.stderr) == (2, True)
    assert cbprof("plot", "sample.json", "--flame", "--term", cwd=tmp_path).returncode == 2
