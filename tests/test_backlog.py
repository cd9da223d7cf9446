"""An engine that never lets the recorder's thread run: memory stays bounded, and a kill loses only the last records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cbprof
from cbprof.formats import load
from cbprof.record import recorder
from cbprof.record.drain import AT_ONCE
from cbprof.record.recorder import BACKLOG, BACKLOG_PHASE
from cbprof.trace import Kind

KILLED = """
import os, signal, cbprof
tracer = cbprof.Tracer("run.json", device="host").start()
for number in range(6000):
    with tracer.step(number), tracer.cpu("schedule"):
        pass
    with tracer.step(number), tracer.gpu("forward"):
        pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_backlog_is_bounded_and_what_that_costs_is_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "BACKLOG", 64)
    longest = 0
    with cbprof.Tracer(tmp_path / "t.json", device="none") as tracer:
        for number in range(2000):
            with tracer.step(number), tracer.cpu("schedule"):
                pass
            assert tracer.recorder is not None
            longest = max(longest, len(tracer.recorder._queue))
    assert longest <= 66
    trace = load(tmp_path / "t.json")
    names = [trace.names[name] for name in trace.name_id]
    assert names.count("schedule") == 2000
    assert names.count(BACKLOG_PHASE) > 10
    assert set(trace.kind[trace.ids_of(BACKLOG_PHASE)[0] == trace.name_id]) == {Kind.CPU_WORK}


def test_a_kill_loses_no_more_than_the_backlog(tmp_path: Path) -> None:
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    trace = load(tmp_path / "run.json.part")
    records = 4 * 6000  # two steps, the phase and the launch
    assert (trace.kind != Kind.GPU_COMPUTE).sum() >= records - BACKLOG - AT_ONCE - 1
    assert not trace.complete
