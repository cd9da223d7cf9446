"""The figures of a recording under way: exact sums, Prometheus' text format, and the endpoint over real HTTP."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from command_line import cbprof
from hypothesis import given
from hypothesis import strategies as st

from cbprof.errors import UsageError
from cbprof.record import meter as meters
from cbprof.record.meter import Meter
from cbprof.record.metrics import MetricsServer, exposition, serving
from cbprof.record.recorder import Recorder
from cbprof.record.session import RecordedRun
from cbprof.trace import Kind, TraceBuilder

WORK, WAIT = Kind.CPU_WORK, Kind.CPU_WAIT


def test_each_phase_takes_what_it_shares_with_a_gap() -> None:
    meter = Meter()
    meter.compute(0, 0, 100, 200)
    meter.host(WAIT, "wait", 90, 210)
    meter.host(WORK, "update", 210, 230)
    meter.host(WORK, "prepare", 230, 260)
    meter.host(Kind.CPU_ANNOTATION, "frame", 0, 1000)
    meter.host(WORK, "launch", 260, 290)
    meter.tokens(4)
    meter.compute(0, 1, 280, 380)
    figures = meter.figures()
    assert figures["exposed_ns"] == {"wait": 10, "update": 20, "prepare": 30, "launch": 20}
    assert figures["host_ns"] == {"wait": 120, "update": 20, "prepare": 30, "launch": 30}
    assert (figures["busy_ns"], figures["idle_ns"]) == ({"0": 200}, {"0": 80})
    assert (figures["steps"], figures["tokens"]) == (2, 4)
    assert (figures["idle"], figures["step_ns"], figures["tokens_per_s"]) == (80 / 180, 180, 4 / 180e-9)


def test_overlapping_streams_count_once_and_before_the_first_nothing_is_known() -> None:
    meter = Meter()
    meter.host(WORK, "load", 0, 90)
    assert "idle" not in meter.figures()
    for start, end in ((100, 200), (150, 260), (120, 130), (300, 310)):
        meter.compute(0, 0, start, end)
    figures = meter.figures()
    assert (figures["busy_ns"], figures["idle_ns"], figures["steps"]) == ({"0": 170}, {"0": 40}, 1)
    assert figures["exposed_ns"] == {}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(1, 60), st.integers(0, 2)), max_size=40))
def test_against_a_count_of_every_nanosecond(rows: list[tuple[bool, int, int, int]]) -> None:
    """Host spans one after the other, as a thread has them; compute in the order of its launches, once all is known."""
    host, device, now, then = [], [], 0, 0
    for is_host, pause, length, name in rows:
        if is_host:
            host.append((now + pause, now + pause + length, str(name)))
            now = host[-1][1]
        else:
            device.append((then + pause, then + pause + length))
            then += pause + length
    meter = Meter()
    for start, end, name in host:
        meter.host(WORK, name, start, end)
    for step, (start, end) in enumerate(device):
        meter.compute(0, step, start, end)
    figures = meter.figures()
    first, last = (device[0][0], device[-1][0]) if device else (0, 0)
    busy = {at for start, end in device for at in range(start, end)}
    idle = set(range(first, last)) - busy
    assert figures["idle_ns"].get("0", 0) == len(idle)
    assert figures["busy_ns"].get("0", 0) == len(busy)
    for name in {name for _, _, name in host}:
        mine = {at for start, end, each in host if each == name for at in range(start, end)}
        assert figures["exposed_ns"].get(name, 0) == len(mine & idle)


def test_memory_is_bounded() -> None:
    meter = Meter()
    for number in range(meters.MOST_SPANS + 500):
        meter.host(WORK, f"request {number}", number, number + 1)
    figures = meter.figures()
    assert len(figures["host_ns"]) == meters.MOST_PHASES + 1
    assert figures["host_ns"][meters.OTHER] == meters.MOST_SPANS + 500 - meters.MOST_PHASES
    for step in range(1000):
        meter.compute(0, step, 10_000 + step * 10, 10_005 + step * 10)
    assert meter.figures()["step_ns"] == 10


LINE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? -?[0-9.e+-]+')


def test_the_text_is_what_prometheus_reads() -> None:
    meter = Meter()
    meter.compute(0, 0, 0, 10)
    meter.host(WORK, 'a "b"\\\n{c}', 10, 20)
    meter.compute(0, 1, 20, 30)
    text = exposition([({"mode": "sync"}, meter.figures()), ({"pid": "7", "role": ""}, {})])
    assert text.endswith("\n")
    named: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            assert line.split()[2] not in named, "each is declared once, before its samples"
            named.add(line.split()[2])
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            assert re.split(r"[{ ]", line)[0] in named
    assert 'cbprof_recording{mode="sync"} 1' in text
    assert 'cbprof_recording{pid="7"} 0' in text
    assert 'cbprof_exposed_host_seconds_total{mode="sync",phase="a \\"b\\"\\\\\\n{c}"} 1e-08' in text
    assert 'cbprof_idle_ratio{mode="sync"} 0.5' in text


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serving(MetricsServer(0, lambda: [({}, Meter().figures())])) as server:
        yield server


def ask(server: MetricsServer, path: str, **headers: str) -> tuple[int, str, str | None]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.getheader("Content-Type")


def test_the_endpoint_is_for_this_machine(server: MetricsServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, text, kind = ask(server, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "cbprof_steps_total 0\n" in text
    assert ask(server, "/")[0] == 404
    assert ask(server, "/metrics", Host="evil.example")[0] == 403


def test_signals_stay_with_the_thread_that_waits_for_them(server: MetricsServer) -> None:
    """`cbprof record` hands them on to its program: on another thread they would end it."""
    thread = next(each for each in threading.enumerate() if each.name == "cbprof metrics")
    blocked = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    mask = int(re.search(r"SigBlk:\s*(\w+)", blocked)[1], 16)  # type: ignore[index]
    assert all(mask >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR2))
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("command", [("run",), ("record", "--", "true")])
def test_a_port_that_is_taken_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        verb, *rest = command
        done = cbprof(verb, "--metrics", str(taken.getsockname()[1]), *rest, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "cannot be listened on" in done.stderr
    with pytest.raises(UsageError), socket.create_server(("127.0.0.1", 0)) as other:
        MetricsServer(other.getsockname()[1], list)


ENGINE = """
import sys, urllib.request, time
from cbprof import Tracer
tracer = Tracer(device="host")
step, text = 0, ""
while "cbprof_steps_total" not in text or "cbprof_exposed_host_seconds_total" not in text:
    for step in range(step + 1, step + 9):
        with tracer.step(step):
            with tracer.cpu("schedule"): time.sleep(0.001)
            with tracer.gpu("compute"): time.sleep(0.001)
    text = urllib.request.urlopen(sys.argv[1]).read().decode()
print(text)
"""


def test_a_recorded_program_is_told_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program itself asks, until its own steps are there."""
    (tmp_path / "engine.py").write_text(ENGINE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/metrics"
    done = cbprof("record", "-q", "--metrics", str(port), "--", "engine.py", url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = capfd.readouterr().out
    assert re.search(r'cbprof_recording\{pid="\d+"\} 1', told)
    assert re.search(r'cbprof_exposed_host_seconds_total\{pid="\d+",phase="schedule"\} [\d.e-]+', told)


def test_a_run_is_told_of_by_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told: list[str] = []

    class StandIn:
        def record(self, *_: object, watch: Callable[[Recorder], None], **__: object) -> RecordedRun:
            recorder = Recorder(TraceBuilder())
            watch(recorder)
            for step in (0, 1):
                recorder.note_tokens([1, 2], [])
                recorder.drain()
                recorder.meter().compute(0, step, step * 100, step * 100 + 60)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                told.append(answer.read().decode())
            raise KeyboardInterrupt

    monkeypatch.setattr("cbprof.record.session.open_engine", lambda *_: contextlib.nullcontext(StandIn()))
    done = cbprof("run", "--mode", "async", "--metrics", str(port), cwd=tmp_path)
    assert done.returncode == 130
    assert f"metrics at http://127.0.0.1:{port}/metrics" in done.stderr
    assert 'cbprof_tokens_total{mode="async"} 4\n' in told[0]
    assert 'cbprof_idle_ratio{mode="async"} 0.4\n' in told[0]
