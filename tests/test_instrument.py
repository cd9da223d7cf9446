"""The public tracer: threads, tasks and devices on lanes of their own; off until it is wanted; a file at the end."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cbprof
from cbprof.errors import UsageError
from cbprof.formats import load
from cbprof.record import tracer as instrument
from cbprof.record.clocks.base import BlockingClock, ClockErrors, Times
from cbprof.record.tracer import HostTracer, Tracer
from cbprof.trace import Kind, RequestEvent, Trace, TraceBuilder


class Ticks:
    """A clock that moves by 10 with each look."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 10
        return self.now_ns


class Stamping:
    """A device that is done as soon as something is queued on it, and remembers what it was asked."""

    errors = ClockErrors(7, 3)

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.calls: list[str] = []

    def begin(self, stream: Any) -> int:
        return self._now()

    def end(self, stream: Any, handle: int) -> Times:
        return Times(handle, self._now())

    def resolve(self, handle: Times) -> Times:
        return handle

    def anchor(self, *, final: bool = False) -> None:
        pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.calls.append("pause")
        yield
        self.calls.append("resume")

    def close(self) -> None:
        pass


def stream(number: int, device: int = 0) -> Any:
    return SimpleNamespace(cuda_stream=number, device_index=device)


def recording(**options: Any) -> tuple[Tracer, TraceBuilder]:
    """A tracer that is on, whose spans are written when it is closed."""
    sink = TraceBuilder()
    return Tracer(sink, **{"now": Ticks(), **options}).start(), sink


def rows(trace: Trace) -> list[tuple[str, str, int, str, int]]:
    """(name, category, step, lane, device) of each span, but for garbage collections, which strike when they like."""
    return [
        (
            trace.name_of(i),
            Kind(trace.kind[i]).category,
            int(trace.step[i]),
            trace.lanes[trace.lane_id[i]].name,
            trace.lanes[trace.lane_id[i]].device,
        )
        for i in range(len(trace))
    ]


def test_the_ten_lines_of_the_documentation(tmp_path: Path) -> None:
    tracer = cbprof.Tracer(tmp_path / "trace.json", device="host", engine="mine", mode="sync")

    @tracer.phase("update")
    def update(value: int) -> int:
        """Doubles."""
        return 2 * value

    with tracer:
        for number in range(2):
            with tracer.step(number):
                with tracer.cpu("schedule"):
                    tracer.batch(tokens=3, requests=2, context=9, phase="mixed")
                with tracer.gpu("forward"):
                    pass
                with tracer.wait("d2h", step=number - 1):
                    pass
                assert update(number) == 2 * number
                tracer.tokens([4, 5], finished=[5] if number else [])
    assert (update.__name__, update.__doc__) == ("update", "Doubles.")
    trace = load(tmp_path / "trace.json")
    assert (trace.complete, trace.mode, trace.evidence, trace.meta.engine) == (True, "sync", "emulated", "mine")
    assert trace.meta.tokens == 4
    assert [row[:4] for row in rows(trace)][:6] == [
        ("step", "cpu.work", 0, "main"),
        ("schedule", "cpu.work", 0, "main"),
        ("forward", "cpu.wait", 0, "main"),  # the host plays the device, and can do nothing else meanwhile
        ("forward", "gpu.compute", 0, "compute"),
        ("d2h", "cpu.wait", -1, "main"),
        ("update", "cpu.work", 0, "main"),
    ]
    assert [int(column[0]) for column in (trace.steps.tokens, trace.steps.requests, trace.steps.context)] == [3, 2, 9]
    assert list(trace.requests.event) == [
        *(RequestEvent.FIRST,) * 2,
        *(RequestEvent.TOKEN,) * 2,
        RequestEvent.FINISH,
    ]
    update(1)  # off again


def test_off_it_records_nothing_and_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CBPROF", raising=False)
    tracer = Tracer(tmp_path / "trace.json")
    with tracer.step(3) as step, tracer.cpu("a") as a, tracer.gpu("b") as b, tracer.wait("c"):
        step.step, a.slot = 4, 1
        b.finish()
    tracer.tokens([1])
    tracer.arrived(1)
    tracer.batch(tokens=1, requests=1)
    tracer.name_lane("loop")
    assert not tracer.on
    assert tracer.close() is None
    assert list(tmp_path.iterdir()) == []


def test_nothing_recorded_leaves_no_file(tmp_path: Path) -> None:
    with Tracer(tmp_path / "trace.json"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_environment_switches_it_on_and_the_exit_finishes_the_file(tmp_path: Path) -> None:
    code = "import cbprof\ntracer = cbprof.Tracer()\nwith tracer.cpu('schedule', step=2): pass"
    for switch, files in (("0", []), ("1", ["trace.json"])):
        environment = {**os.environ, "CBPROF": switch}
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
        assert [path.name for path in tmp_path.iterdir()] == files
    assert rows(load(tmp_path / "trace.json")) == [("schedule", "cpu.work", 2, "main", -1)]


def test_an_error_in_the_block_leaves_a_trace_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Tracer(tmp_path / "trace.json") as tracer, tracer.cpu("schedule"):
        raise KeyError
    trace = load(tmp_path / "trace.json")
    assert not trace.complete
    assert len(trace) == 1


def test_each_start_is_a_recording_of_its_own(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "trace.json")
    for name in ("first", "second"):
        with tracer, tracer.cpu(name):
            tracer.start()  # on already
        assert rows(load(tmp_path / "trace.json"))[0][0] == name


# Lanes ----------------------------------------------------------------------------------------------------------------


def test_threads_have_lanes_of_their_own_whatever_they_interleave() -> None:
    tracer, sink = recording()
    opened, closed = threading.Barrier(3), threading.Barrier(3)

    def work() -> None:
        with tracer.cpu(threading.current_thread().name):
            opened.wait()  # both phases are open at once
            closed.wait()

    threads = [threading.Thread(target=work, name=name) for name in ("loader", "sampler")]
    for thread in threads:
        thread.start()
    with tracer.cpu("main work"):
        opened.wait()
        closed.wait()
    for thread in threads:
        thread.join()
    tracer.close()
    assert sorted(row[0::3] for row in rows(sink.build())) == [
        ("loader", "loader"), ("main work", "main"), ("sampler", "sampler"),
    ]  # fmt: skip


def test_threads_of_one_name_are_told_apart() -> None:
    tracer, sink = recording()

    def work() -> None:
        with tracer.cpu("work"):
            pass

    for _ in range(2):
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    tracer.close()
    assert [lane.name for lane in sink.build().lanes] == ["worker", "worker 2"]


def test_tasks_have_lanes_of_their_own_and_the_step_of_who_started_them() -> None:
    tracer, sink = recording()

    @tracer.phase("copy")
    async def copy(turn: asyncio.Event, other: asyncio.Event) -> None:
        other.set()
        with tracer.wait("turn"):
            await turn.wait()  # the other task opens and closes its phases meanwhile

    async def steps() -> None:
        for number in range(3):
            a, b = asyncio.Event(), asyncio.Event()
            with tracer.step(number):
                await asyncio.gather(copy(a, b), copy(b, a))

    asyncio.run(steps())
    tracer.close()
    trace = sink.build()
    copies = [row for row in rows(trace) if row[0] == "copy"]
    assert [row[2] for row in copies] == [0, 0, 1, 1, 2, 2]
    # A lane is taken over by the task after: two at once, beside the one that starts them.
    assert {row[3] for row in rows(trace)} == {"main task 1", "main task 2", "main task 3"}
    for lane in range(len(trace.lanes)):
        mine = trace.lane_id == lane
        ends = trace.end_ns[mine]
        spans = list(zip(trace.start_ns[mine].tolist(), ends.tolist(), strict=True))
        assert all(b >= d or b <= c for a, b in spans for c, d in spans if a <= c), "spans of a lane nest or are apart"


def test_a_lane_can_be_named() -> None:
    tracer, sink = recording()

    async def serve() -> None:
        tracer.name_lane("frontend")
        with tracer.cpu("parse"):
            await asyncio.sleep(0)

    tracer.name_lane("loop")
    with tracer.cpu("schedule"):
        pass
    asyncio.run(serve())
    tracer.close()
    assert [row[3] for row in rows(sink.build())] == ["loop", "frontend"]


def test_devices_and_streams_have_lanes_of_their_own() -> None:
    now = Ticks()
    clocks = {0: Stamping(now), 1: Stamping(now)}
    tracer, sink = recording(now=now, device=clocks.__getitem__)
    for number, device, use in [(7, 0, "compute"), (7, 1, "compute"), (8, 0, "compute"), (9, 1, "h2d")]:
        with tracer.gpu("work", stream(number, device), use=use, step=device):
            pass
    with tracer.gpu("more", stream(8, 0), launch="replay"):
        pass
    recorded = tracer.close()
    trace = sink.build()
    on_device = [row for row in rows(trace) if row[4] >= 0]
    assert on_device == [
        ("work", "gpu.compute", 0, "compute", 0),
        ("work", "gpu.compute", 1, "compute", 1),
        ("work", "gpu.compute", 0, "compute 2", 0),
        ("work", "gpu.h2d", 1, "h2d", 1),
        ("more", "gpu.compute", -1, "compute 2", 0),
    ]
    assert [row[0] for row in rows(trace) if row[4] < 0] == ["work"] * 4 + ["replay"]
    assert recorded is not None
    assert (recorded.clock_error_ns, recorded.device_error_ns) == (7, 3)
    links = trace.link.tolist()
    assert sorted(links) == sorted(2 * list(range(5)))


def test_the_device_part_of_a_phase_can_end_before_the_phase() -> None:
    now = Ticks()
    tracer, sink = recording(now=now, device=Stamping(now))
    with tracer.gpu("forward", stream(1)) as span:
        span.finish()
        span.finish()
        with tracer.cpu("capture"):
            pass
    tracer.close()
    trace = sink.build()
    ends = {trace.name_of(i) + Kind(trace.kind[i]).category: int(trace.end_ns[i]) for i in range(len(trace))}
    assert ends["forwardgpu.compute"] < ends["capturecpu.work"] < ends["forwardcpu.work"]


def test_an_error_inside_a_phase_drops_the_device_span() -> None:
    now = Ticks()
    tracer, sink = recording(now=now, device=Stamping(now))
    with pytest.raises(ValueError, match="no"), tracer.gpu("forward", stream(1)):
        raise ValueError("no")
    tracer.close()
    assert [row[1] for row in rows(sink.build())] == ["cpu.work"]


def test_a_capture_keeps_every_clock_away() -> None:
    now = Ticks()
    clock = Stamping(now)
    tracer, _ = recording(now=now, device=clock)
    with tracer.gpu("forward", stream(1)):
        pass
    with tracer.cpu("capture"):
        clock.calls.append("capturing")
    tracer.close()
    assert clock.calls == ["pause", "capturing", "resume"]


# Users' mistakes, other profilers, other processes --------------------------------------------------------------------


def test_mistakes_are_told() -> None:
    for device, text in (("gpu", "device='gpu'"), ("cuda", "torch sees no CUDA device")):
        if device == "cuda":
            torch = pytest.importorskip("torch")
            if torch.cuda.is_available():
                continue
        with pytest.raises(UsageError, match=text):
            Tracer(device=device)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is a generator"):
        Tracer(TraceBuilder()).phase("tokens")(lambda: (yield))


def test_a_full_disk_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer(tmp_path / "trace.json").start()
    with tracer.cpu("schedule"):
        pass
    monkeypatch.setattr(instrument.TraceWriter, "span", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "no space")))
    tracer.close()
    assert "recording stopped after 0 spans" in str(tracer.failure)
    assert not load(tmp_path / "trace.json").complete


def test_other_profilers_get_the_same_names() -> None:
    torch = pytest.importorskip("torch")
    tracer, sink = recording(record_function=True)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu) as profile, tracer.step(1), tracer.cpu("schedule") as span:
        span.step = 5
    tracer.close()
    assert {"step", "schedule"} <= {event.key for event in profile.key_averages()}
    assert [row[2] for row in rows(sink.build())] == [1, 5]


def test_nvtx_ranges_nest_around_the_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    ranges: list[str] = []

    @contextmanager
    def nvtx_range(name: str) -> Iterator[None]:
        ranges.append(f"push {name}")
        yield
        ranges.append(f"pop {name}")

    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="nvtx=True"):
            Tracer(nvtx=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range", nvtx_range)
    tracer, _ = recording(nvtx=True, device="none")
    with tracer.step(1), tracer.gpu("forward", stream(1)):
        pass
    tracer.close()
    assert ranges == ["push step", "push forward", "pop forward", "pop step"]


def test_a_process_forked_off_leaves_the_file_to_its_parent(tmp_path: Path) -> None:
    code = """if True:
        import os, cbprof
        with cbprof.Tracer("trace.json.gz") as tracer:
            with tracer.cpu("before"): pass
            pid = os.fork()
            with tracer.cpu("child" if pid == 0 else "parent"): pass
            if pid: assert os.waitpid(pid, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True)
    assert [row[0] for row in rows(load(tmp_path / "trace.json.gz"))] == ["before", "parent"]


@pytest.fixture
def host() -> Iterator[tuple[HostTracer, TraceBuilder]]:
    """A tracer of ``cbprof record``, and what it records."""
    sink = TraceBuilder()
    tracer = HostTracer(sink, now=Ticks())
    tracer.host()
    yield tracer, sink
    tracer.close()
    instrument._host = None
    instrument._guests.clear()


def test_under_cbprof_record_all_tracers_feed_one_recording(
    host: tuple[HostTracer, TraceBuilder], tmp_path: Path
) -> None:
    tracer, sink = host
    guest = Tracer(tmp_path / "own.json", device="host")
    with guest:
        assert not guest.on
        tracer.start()
        with guest.cpu("schedule"), guest.gpu("forward"):
            pass
    assert guest.on, "it leaves its own file alone, and goes on"
    late = Tracer(tmp_path / "late.json")
    with late.cpu("update"):
        pass
    tracer.close()
    assert not guest.on
    assert not late.on
    assert sorted(row[0] for row in rows(sink.build())) == ["forward", "forward", "schedule", "update"]
    assert list(tmp_path.iterdir()) == []


def test_a_tracer_that_is_gone_is_nobodys_guest(host: tuple[HostTracer, TraceBuilder]) -> None:
    guest = Tracer(TraceBuilder())
    assert host[0].guests == [guest]
    del guest
    gc.collect()
    assert host[0].guests == []


def test_a_blocking_clock_stamps_what_the_host_does() -> None:
    now = Ticks()
    clock = BlockingClock(now)
    assert clock.resolve(clock.end(None, clock.begin(None))) == Times(10, 20)
