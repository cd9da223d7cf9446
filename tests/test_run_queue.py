"""Time in which a thread was ready to run and had no core is read from the kernel, and told where it is much."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cbprof
from cbprof.analysis.accounting.cores import short_of_cores
from cbprof.formats import load
from cbprof.meta import Meta, ThreadTime
from cbprof.record.run_queue import RunQueue, SchedStat, schedstat
from tests.command_line import cbprof as command

accounted = pytest.mark.skipif(
    (schedstat(threading.get_native_id()) or SchedStat(0, 0)).run_ns == 0, reason="the kernel keeps no account"
)

SPINS = "import time; print(flush=True); end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@contextmanager
def crowded_core() -> Iterator[None]:
    """This thread and a process that never sleeps have one core for both."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with subprocess.Popen([sys.executable, "-c", SPINS], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            yield
            other.kill()
    finally:
        os.sched_setaffinity(0, before)


@accounted
def test_a_process_on_the_core_of_the_engine_is_told(tmp_path: Path) -> None:
    path, thread = tmp_path / "t.json", threading.get_native_id()
    with crowded_core(), cbprof.Tracer(path, device="host") as tracer:
        with tracer.cpu("first"):  # the thread is seen at its end
            pass
        before = schedstat(thread)
        end = time.thread_time() + 0.2
        for number in range(1000):
            with tracer.step(number), tracer.gpu("forward"):
                sum(range(20_000))
            if time.thread_time() > end:
                break
        after = schedstat(thread)
    assert before is not None
    assert after is not None
    (said,) = load(path).meta.threads
    assert said.lane == "main"
    assert said.run_ns == pytest.approx(after.run_ns - before.run_ns, rel=0.05, abs=20_000_000)  # two ticks
    assert said.wait_ns == pytest.approx(after.wait_ns - before.wait_ns, rel=0.05, abs=20_000_000)
    for words in (["report", str(path)], ["doctor", str(path)], ["compare", str(path), str(path)]):
        told = " ".join(command(*words, cwd=tmp_path).stdout.replace("│", " ").split())
        assert "short of cores: its thread main was runnable but not running" in told, words


def test_a_thread_that_ends_keeps_its_time_and_its_number_is_given_again() -> None:
    number = threading.get_native_id()
    account = {number: SchedStat(1000, 10)}
    queue = RunQueue(account.get)
    queue.joins("main")
    queue.joins("engine")  # a new name of the same thread
    account[number] = SchedStat(1700, 310)
    queue.sample()
    assert queue.times() == (ThreadTime("engine", 700, 300),)
    account[number] = SchedStat(5, 0)  # another thread
    queue.sample()
    account[number] = SchedStat(9000, 9000)
    queue.sample()
    assert queue.times() == (ThreadTime("engine", 700, 300),)


def test_a_drain_that_is_woken_often_reads_once_a_second() -> None:
    reads: list[int] = []

    def read(thread: int) -> SchedStat:
        reads.append(thread)
        return SchedStat(len(reads), 0)

    queue = RunQueue(read)
    queue.joins("main")
    for tenth in range(50, 81):  # 5.0 s to 8.0 s
        queue.sample_if_due(tenth / 10)
    assert len(reads) == 1 + 4


@pytest.mark.parametrize("account", [None, SchedStat(0, 0)])
def test_a_kernel_without_an_account_is_silent(account: SchedStat | None) -> None:
    queue = RunQueue(lambda thread: account)
    queue.joins("main")
    queue.sample()
    assert queue.times() == ()


def test_the_busiest_thread_is_judged() -> None:
    few = ThreadTime("engine", 95, 5)
    assert not list(short_of_cores(Meta(evidence="unknown")))
    assert not list(short_of_cores(Meta(evidence="unknown", threads=(few, ThreadTime("poll", 1, 9)))))
    (told,) = short_of_cores(Meta(evidence="unknown", threads=(few, ThreadTime("output", 690, 310))))
    assert "thread output was runnable but not running 31" in told
