"""Device times on the host's clock: exact for the device process, within the stated error for CUDA events."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from fractions import Fraction
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbprof.errors import EngineError
from cbprof.record.clocks import cuda as cuda_clock
from cbprof.record.clocks.alignment import EVENT_RESOLUTION_NS, Alignment, Bracket
from cbprof.record.clocks.base import ClockErrors, NoClock
from cbprof.record.clocks.cuda import CudaClock
from cbprof.record.clocks.host import HostClock

MS, S = 1_000_000, 1_000_000_000


def float32_ms(device_ns: int) -> float:
    """A time difference as CUDA returns it."""
    return float(struct.unpack("f", struct.pack("f", device_ns / MS))[0])


def elapsed_ms(a: int, b: int) -> float:
    """Events of a fake device are its times, in integer nanoseconds."""
    return float32_ms(b - a)


# The arithmetic -------------------------------------------------------------------------------------------------------


@st.composite
def runs(draw: st.DrawFn, spacing: st.SearchStrategy[int]) -> tuple[Alignment[int], Fraction, list[int]]:
    """Anchors on a clock that drifts, its drift (host ns per device ns), and where the anchors lie."""
    ratio = 1 + Fraction(draw(st.integers(-50_000, 50_000)), 10**9)
    alignment = Alignment(elapsed_ms)
    time, anchors = draw(st.integers(0, S)), []
    for gap in draw(st.lists(spacing, min_size=2, max_size=8)):
        before = draw(st.integers(1, 19_999))
        after = draw(st.integers(1, 20_000 - before))
        host = time * ratio
        alignment.add_anchor(time, Bracket(int(host) - before, int(host) + after))
        anchors.append(time)
        time += gap
    return alignment, ratio, anchors


@given(st.data())
def test_every_event_is_within_the_stated_error_and_none_is_overtaken(data: st.DataObject) -> None:
    alignment, ratio, anchors = data.draw(runs(st.integers(20 * MS, 2 * S)))
    inside = st.integers(anchors[0], anchors[-1] - 1)
    beside = st.builds(lambda anchor, offset: anchor + offset, st.sampled_from(anchors), st.integers(-300, 300))
    events = data.draw(st.lists(inside | beside.filter(lambda t: anchors[0] <= t < anchors[-1]), min_size=1))

    mapped = {}
    for event in events:  # in any order
        mapped[event] = alignment.host_ns(event)
        assert mapped[event] is not None
        assert abs(mapped[event] - event * ratio) <= alignment.errors.clock_error_ns
    assert all(mapped[first] <= mapped[second] for first, second in pairwise(sorted(events)))


@given(st.data())
def test_neighbouring_events_are_apart_by_what_they_are_apart(data: st.DataObject) -> None:
    alignment, ratio, anchors = data.draw(runs(st.integers(S, 2 * S)))
    first = data.draw(st.integers(anchors[0], anchors[-1] - 10 * MS - 1))
    second = first + data.draw(st.integers(0, 10 * MS))
    apart = alignment.host_ns(second) - alignment.host_ns(first)
    assert abs(apart - (second - first) * ratio) <= alignment.errors.device_error_ns


def test_an_event_waits_for_the_anchor_behind_it() -> None:
    alignment = Alignment(elapsed_ms)
    assert alignment.errors == ClockErrors(None, None)
    alignment.add_anchor(0, Bracket(100, 300))
    assert alignment.host_ns(400) is None
    alignment.add_anchor(1000, Bracket(1100, 1300))
    assert alignment.host_ns(400) == 600
    assert alignment.host_ns(1000) is None
    assert alignment.host_ns(1400) is None
    alignment.add_anchor(2000, Bracket(2100, 2300))
    assert alignment.host_ns(1400) == 1600
    assert alignment.host_ns(400) == 600
    assert alignment.host_ns(-400) == -200  # before the first anchor


def test_a_change_of_drift_is_part_of_the_error() -> None:
    alignment = Alignment(elapsed_ms)
    for device_ns, host_ns in [(0, 0), (S, S), (2 * S, 2 * S + 40_000)]:
        alignment.add_anchor(device_ns, Bracket(host_ns - 3_000, host_ns + 3_001))
    # The anchor in the middle lies 20 us from the line between the others. Float32 steps by 61.04 ns at 1 s.
    rounding_ns = 123 + 2
    assert alignment.errors == ClockErrors(3_001 + 20_000 + rounding_ns, EVENT_RESOLUTION_NS + rounding_ns)


def test_five_minutes_do_not_cost_precision() -> None:
    """Anchor by anchor, 300 s are as exact as 1 s; float32 milliseconds from the start would be 31 us wrong."""
    alignment = Alignment(elapsed_ms)
    for second in range(301):
        time = second * S + second  # not a round number of milliseconds
        alignment.add_anchor(time, Bracket(time - 2_000, time + 2_000))
    event = 299 * S + 123_456_789
    assert alignment.errors.clock_error_ns < 2_500
    assert abs(alignment.host_ns(event) - event) < 250


# The device process and no device -------------------------------------------------------------------------------------


class CountedStream:
    kind = "compute"
    queue = 2

    def __init__(self) -> None:
        self.submitted = 5


class StampedDevice:
    """Operation n of any queue runs from 100 n to 100 n + 60; the first ``executed`` are over."""

    executed = 0

    def stamps(self, queue: int, first: int, last: int) -> tuple[int, int] | None:
        assert queue == 2
        return (100 * first, 100 * last + 60) if last < self.executed else None


def test_host_clock_reads_the_stamps_of_what_was_queued() -> None:
    device, stream = StampedDevice(), CountedStream()
    clock = HostClock(device)
    handle = clock.begin(stream)
    stream.submitted += 3
    handle = clock.end(stream, handle)
    clock.anchor()
    assert handle is not None
    assert clock.resolve(handle) is None
    device.executed = 8
    assert clock.resolve(handle) == (500, 760)
    assert clock.end(stream, clock.begin(stream)) is None  # nothing queued, nothing to time
    assert clock.errors.clock_error_ns >= 1
    with clock.paused():
        clock.close()


def test_no_clock_has_no_times() -> None:
    clock = NoClock()
    assert clock.end(None, clock.begin(None)) is None
    assert clock.resolve(None) is None
    assert clock.errors == ClockErrors(None, None)


# CUDA, on a fake of torch.cuda ----------------------------------------------------------------------------------------


class FakeGpu:
    """A GPU whose clock runs 20 ppm fast, and a host whose every look at its clock takes 1 us.

    Work on a stream takes the time that it is given; an event costs nothing. ``latency_ns`` passes before an event on
    an idle stream happens.
    """

    def __init__(self) -> None:
        self.host_ns = 0
        self.latency_ns = 2_000
        self.events: list[FakeEvent] = []
        self.queries = 0
        self.current = 0
        self.contexts: set[int] = set()

    def now(self) -> int:
        self.host_ns += 1_000
        return self.host_ns

    def sleep(self, seconds: float) -> None:
        self.host_ns += round(seconds * S)

    @property
    def torch(self) -> SimpleNamespace:
        def event(*, enable_timing: bool) -> FakeEvent:
            assert enable_timing
            return FakeEvent(self)

        def stream(device: int, priority: int = 0) -> FakeStream:
            return FakeStream(self)

        return SimpleNamespace(cuda=SimpleNamespace(Event=event, Stream=stream, device=partial(FakeDevice, self)))


class FakeDevice:
    """``torch.cuda.device``: the device is current inside the block, which can be entered many times."""

    def __init__(self, gpu: FakeGpu, device: int) -> None:
        self.gpu = gpu
        self.device = device

    def __enter__(self) -> None:
        self.before, self.gpu.current = self.gpu.current, self.device

    def __exit__(self, *error: object) -> None:
        self.gpu.current = self.before


class FakeStream:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.idle_at_ns = 0

    def work(self, duration_ns: int) -> None:
        self.idle_at_ns = max(self.idle_at_ns, self.gpu.host_ns) + duration_ns

    def synchronize(self) -> None:
        self.gpu.host_ns = max(self.gpu.host_ns, self.idle_at_ns)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.at_ns: int | None = None
        gpu.events.append(self)

    def record(self, stream: FakeStream) -> None:
        self.at_ns = stream.idle_at_ns = max(stream.idle_at_ns, self.gpu.host_ns + self.gpu.latency_ns)

    def query(self) -> bool:
        self.gpu.queries += 1
        self.gpu.contexts.add(self.gpu.current)
        return self.at_ns is not None and self.gpu.host_ns >= self.at_ns

    def elapsed_time(self, end_event: FakeEvent) -> float:
        assert self.query(), "CUDA refuses to subtract events that have not happened"
        assert end_event.query(), "CUDA refuses to subtract events that have not happened"
        return float32_ms(round((end_event.at_ns - self.at_ns) * 1.00002))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setitem(sys.modules, "torch", gpu.torch)
    monkeypatch.setattr(cuda_clock, "time", SimpleNamespace(sleep=gpu.sleep))
    return gpu


def launch(clock: CudaClock, stream: FakeStream, duration_ns: int) -> tuple[Any, int, int]:
    """The handle of some work, and when it truly runs."""
    engine_stream = SimpleNamespace(kind="compute", raw=stream)
    handle = clock.begin(engine_stream)
    start_ns = stream.idle_at_ns
    stream.work(duration_ns)
    clock.end(engine_stream, handle)
    return handle, start_ns, stream.idle_at_ns


def test_cuda_spans_are_resolved_behind_the_next_anchor(gpu: FakeGpu) -> None:
    clock = CudaClock(0, pairs=4, now=gpu.now)
    stream = FakeStream(gpu)
    launched = []
    for _ in range(500):
        launched.append(launch(clock, stream, 8 * MS))
        clock.anchor()
        gpu.sleep(0.0075)
    handle, start_ns, end_ns = launched[0]
    times = clock.resolve(handle)
    error_ns = clock.errors.clock_error_ns
    assert error_ns < 10_000
    assert abs(times.start_ns - start_ns) <= error_ns
    assert abs(times.end_ns - end_ns) <= error_ns
    assert clock.resolve(launched[-1][0]) is None  # still running
    stream.synchronize()
    assert clock.resolve(launched[-1][0]) is None  # over, but no anchor is behind it
    clock.anchor(final=True)
    resolved = [clock.resolve(handle) for handle, *_ in launched[1:]]
    assert all(first.end_ns <= second.start_ns for first, second in pairwise(resolved))


def test_event_pairs_are_used_again(gpu: FakeGpu) -> None:
    clock = CudaClock(0, pairs=2, now=gpu.now)
    stream = FakeStream(gpu)
    made = len(gpu.events)
    for _ in range(20):
        handles = [launch(clock, stream, 1000)[0] for _ in range(3)]  # one more than there are
        stream.synchronize()
        clock.anchor(final=True)
        assert None not in [clock.resolve(handle) for handle in handles]
    assert len(gpu.events) == made + 2 + 20  # the third pair once, and one event for each anchor


def test_a_stream_that_stalls_takes_no_more_than_so_many_events(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_clock, "MOST_PAIRS", 4)
    clock = CudaClock(0, pairs=2, now=gpu.now)
    stream = FakeStream(gpu)
    made = len(gpu.events)
    handles = [launch(clock, stream, 3600 * 10**9)[0] for _ in range(100)]
    assert len(gpu.events) == made + 2 * 2
    assert (sum(handle is not None for handle in handles), clock.end(stream, None)) == (4, None)
    stream.synchronize()
    clock.anchor(final=True)
    assert None not in [clock.resolve(handle) for handle in handles[:4]]
    assert launch(clock, stream, 1000)[0] is not None


def test_a_plain_torch_stream_will_do(gpu: FakeGpu) -> None:
    clock = CudaClock(0, pairs=1, now=gpu.now)
    stream = FakeStream(gpu)
    handle = clock.end(stream, clock.begin(stream))
    gpu.sleep(0.1)
    clock.anchor(final=True)
    assert clock.resolve(handle) is not None


def test_a_context_is_made_on_the_clocks_own_device_alone(gpu: FakeGpu) -> None:
    clock = CudaClock(1, pairs=1, now=gpu.now)
    handle, *_ = launch(clock, FakeStream(gpu), 1000)
    clock.resolve(handle)
    gpu.sleep(2)
    clock.anchor()
    assert clock.resolve(handle) is not None
    assert gpu.contexts == {1}
    assert gpu.current == 0


def test_nothing_is_queried_while_a_graph_is_captured(gpu: FakeGpu) -> None:
    clock = CudaClock(0, pairs=1, now=gpu.now)
    handle, *_ = launch(clock, FakeStream(gpu), 1000)
    gpu.sleep(2)
    before = gpu.queries
    results: list[object] = []
    with clock.paused():
        thread = threading.Thread(target=lambda: results.extend([clock.anchor(), clock.resolve(handle)]))
        thread.start()
        thread.join()
    assert gpu.queries == before
    assert results == [None, None]
    clock.anchor()
    assert clock.resolve(handle) is not None


def test_an_anchor_with_a_wide_bracket_is_refused_until_one_is_overdue(gpu: FakeGpu) -> None:
    clock = CudaClock(0, pairs=1, now=gpu.now)
    good = clock.errors.clock_error_ns
    gpu.latency_ns = 60_000
    gpu.sleep(2)
    clock.anchor()
    assert clock.errors.clock_error_ns == good
    gpu.sleep(2)
    clock.anchor()
    assert 30_000 < clock.errors.clock_error_ns < 35_000


def test_a_gpu_that_does_not_answer(gpu: FakeGpu) -> None:
    gpu.latency_ns = S
    with pytest.raises(EngineError, match="does not answer"):
        CudaClock(0, pairs=0, now=gpu.now)


@pytest.mark.gpu
def test_cuda_clock_on_a_gpu() -> None:
    """Causality: work starts after its launch was called, and ends before the wait for it returns."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")

    clock = CudaClock(0, pairs=8)
    stream = torch.cuda.Stream()
    matrix = torch.zeros(4096, 4096, device="cuda")
    with torch.cuda.stream(stream):
        matrix @ matrix
    stream.synchronize()
    launches = []
    for _ in range(800):  # past an anchor or two
        called_ns = time.perf_counter_ns()
        handle = clock.begin(stream)
        with torch.cuda.stream(stream):
            matrix @ matrix
        clock.end(stream, handle)
        stream.synchronize()
        launches.append((called_ns, handle, time.perf_counter_ns()))
        clock.anchor()
    clock.anchor(final=True)
    error_ns = clock.errors.clock_error_ns
    assert error_ns < 50_000
    resolved = [clock.resolve(handle) for _, handle, _ in launches]
    for (called_ns, _, returned_ns), times in zip(launches, resolved, strict=True):
        assert called_ns - error_ns <= times.start_ns < times.end_ns <= returned_ns + error_ns
    assert all(first.end_ns <= second.start_ns for first, second in pairwise(resolved))


SECOND_GPU = """
import threading, torch
from cbprof.record.clocks.cuda import CudaClock
torch.cuda.set_device(1)
clock, stream = CudaClock(1, pairs=1), torch.cuda.Stream()
handle = clock.end(stream, clock.begin(stream))
stream.synchronize()
thread = threading.Thread(target=lambda: (clock.resolve(handle), clock.anchor(final=True), clock.resolve(handle)))
thread.start()
thread.join()
print(torch._C._cuda_hasPrimaryContext(0), torch._C._cuda_hasPrimaryContext(1))
"""


@pytest.mark.gpu
def test_the_clock_of_the_second_gpu_leaves_the_first_alone() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    ran = subprocess.run([sys.executable, "-c", SECOND_GPU], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True\n"
