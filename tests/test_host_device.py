"""The host device, on a toy model: order, events, races, stamps, and all the ways in which either process can end."""

import gc
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest
from toy_host_model import DIE, ECHO, FAIL, GATED, REFUSE, ToySpec

from cbprof.engine.devices.base import Device, Streams
from cbprof.engine.devices.host import patience
from cbprof.engine.devices.host.device import HostDevice
from cbprof.engine.devices.host.patience import Activity, Patience
from cbprof.engine.layout import SlotLayout
from cbprof.errors import EngineError, UsageError

TESTS = Path(__file__).parent
LAYOUT = SlotLayout(max_tokens=4, max_requests=4, max_blocks=2, block_size=2)
RING = 64


class Toy:
    """Makes devices that share one gate. Opened for reading too, so that neither side's ``open`` blocks."""

    def __init__(self, folder: Path) -> None:
        self.spec = ToySpec(str(folder / "gate"))
        os.mkfifo(self.spec.gate)
        self._gate = os.open(self.spec.gate, os.O_RDWR)

    def device(self, factory: str = "ToyModel", ring: int = RING) -> HostDevice:
        return HostDevice(
            self.spec,
            LAYOUT,
            num_blocks=12,
            slots=2,
            buckets=(1, 4),
            factory=f"toy_host_model:{factory}",
            ring=ring,
        )

    def open_gate(self) -> None:
        os.write(self._gate, b".")

    def close(self) -> None:
        os.close(self._gate)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    toy = Toy(tmp_path_factory.mktemp("toy"))
    yield toy
    toy.close()


@pytest.fixture(scope="module")
def shared(toy: Toy) -> Iterator[HostDevice]:
    with toy.device() as device:
        yield device


@pytest.fixture
def device(shared: HostDevice) -> HostDevice:
    """One device for all tests that leave it idle and alive."""
    for slot in shared.slots:
        slot.inputs[:] = 0
        slot.output[:] = 0
    shared.synchronize()
    return shared


@pytest.fixture
def streams(device: HostDevice) -> Streams:
    return device.streams(separate=True)


def is_running(pid: int) -> bool:
    """Whether the process runs still, or stands about as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def open_channels() -> list[str]:
    """The pipes and sockets of this process. Shared memory is left out: its arrays may be in use after a close."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sorted(link for link in links if link.startswith(("pipe:", "socket:")))


class TestContract:
    def test_is_a_device(self, device: HostDevice) -> None:
        checked: Device = device
        assert (checked.name, checked.evidence, checked.buckets) == ("host process", "emulated", (1, 4))
        assert [slot.inputs.shape for slot in checked.slots] == [(LAYOUT.input_size,)] * 2
        assert [slot.output.shape for slot in checked.slots] == [(LAYOUT.output_size,)] * 2

    def test_facts_come_from_the_child(self, device: HostDevice) -> None:
        assert device.facts.pid == device.pid != os.getpid()
        assert device.facts.blocks == 12

    def test_streams_are_three_queues_or_three_views_of_one(self, device: HostDevice) -> None:
        separate, merged = device.streams(separate=True), device.streams(separate=False)
        for streams in (separate, merged):
            assert [streams.h2d.kind, streams.compute.kind, streams.d2h.kind] == ["h2d", "compute", "d2h"]
        assert len({separate.h2d.queue, separate.compute.queue, separate.d2h.queue}) == 3
        assert len({merged.h2d.queue, merged.compute.queue, merged.d2h.queue}) == 1
        assert device.streams(separate=True) is separate
        assert device.streams(separate=False) is merged

    def test_the_parent_needs_no_torch(self) -> None:
        code = "import sys, cbprof.engine.devices.host.device; sys.exit('torch' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)


class TestOrder:
    def test_one_queue_runs_in_order(self, toy: Toy, device: HostDevice) -> None:
        merged = device.streams(separate=False)
        device.slots[1].inputs[:4] = [10, 20, 30, 40]
        device.run("h2d", 1, merged.h2d)
        device.run("step", 1, merged.compute, GATED)
        device.run("d2h", 1, merged.d2h)
        assert not device.slots[1].output.any()
        toy.open_gate()
        device.synchronize()
        assert device.slots[1].output.tolist() == [11, 21, 31, 41]

    def test_slots_are_apart(self, device: HostDevice) -> None:
        merged = device.streams(separate=False)
        for index, slot in enumerate(device.slots):
            slot.inputs[:] = 100 * index
            device.run("h2d", index, merged.h2d)
        for index in range(2):
            device.run("step", index, merged.compute, ECHO)
            device.run("d2h", index, merged.d2h)
        device.synchronize()
        assert [slot.output[0] for slot in device.slots] == [1, 101]

    def test_a_copy_reads_the_host_buffer_when_it_executes(
        self, toy: Toy, device: HostDevice, streams: Streams
    ) -> None:
        device.run("step", 0, streams.compute, GATED)
        device.slots[0].inputs[:] = 5
        device.run("h2d", 0, streams.compute)
        device.slots[0].inputs[:] = 6  # too early: the copy is still queued
        toy.open_gate()
        device.run("step", 0, streams.compute, ECHO)
        device.run("d2h", 0, streams.compute)
        device.synchronize()
        assert device.slots[0].output[0] == 7

    def test_an_event_orders_two_queues(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        computed, done = device.event("outputs_ready"), device.event("done")
        device.slots[0].inputs[:] = 50
        device.run("h2d", 0, streams.compute)
        device.run("step", 0, streams.compute, GATED)
        computed.record(streams.compute)
        streams.d2h.wait(computed)
        device.run("d2h", 0, streams.d2h)
        done.record(streams.d2h)
        assert device.stamps(streams.d2h.queue, streams.d2h.submitted - 1, streams.d2h.submitted - 1) is None
        toy.open_gate()
        done.synchronize()
        assert device.slots[0].output.tolist() == [51, 51, 51, 51]

    def test_without_the_event_the_copy_is_too_early(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        done = device.event("done")
        device.slots[0].inputs[:] = 70
        device.run("h2d", 0, streams.compute)
        device.run("step", 0, streams.compute, GATED)
        device.run("d2h", 0, streams.d2h)
        done.record(streams.d2h)
        done.synchronize()  # returns, although the step has not run
        assert device.slots[0].output[0] != 71
        toy.open_gate()
        device.synchronize()


class TestEvents:
    def test_never_recorded_is_no_wait(self, device: HostDevice, streams: Streams) -> None:
        never, done = device.event("never"), device.event("done")
        streams.d2h.wait(never)
        device.run("d2h", 0, streams.d2h)
        done.record(streams.d2h)
        done.synchronize()
        never.synchronize()

    def test_a_wait_keeps_the_record_it_saw(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        event, done = device.event("ready"), device.event("done")
        device.run("step", 0, streams.compute, GATED)
        event.record(streams.compute)
        streams.d2h.wait(event)
        device.run("step", 0, streams.compute, GATED)
        event.record(streams.compute)
        device.run("d2h", 0, streams.d2h)
        done.record(streams.d2h)
        toy.open_gate()
        done.synchronize()  # returns, although the second record has not happened
        toy.open_gate()
        event.synchronize()

    def test_a_wait_takes_the_latest_record(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        event = device.event("ready")
        event.record(streams.compute)
        device.run("step", 0, streams.compute, GATED)
        event.record(streams.compute)
        streams.d2h.wait(event)
        device.run("d2h", 0, streams.d2h)
        toy.open_gate()
        device.synchronize()
        assert last_stamps(device, streams.d2h).start_ns >= last_stamps(device, streams.compute).end_ns

    def test_an_event_behind_a_wait_includes_it(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        first, second = device.event("first"), device.event("second")
        device.run("step", 0, streams.compute, GATED)
        first.record(streams.compute)
        streams.h2d.wait(first)
        second.record(streams.h2d)  # behind the wait alone: nothing was run there
        streams.d2h.wait(second)
        device.run("d2h", 0, streams.d2h)
        toy.open_gate()
        device.synchronize()
        assert last_stamps(device, streams.d2h).start_ns >= last_stamps(device, streams.compute).end_ns

    def test_several_threads_wait(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        events = []
        for stream in (streams.h2d, streams.compute, streams.d2h):
            device.run("step", 0, stream, GATED)
            events.append(device.event("done"))
            events[-1].record(stream)
        threads = [threading.Thread(target=event.synchronize) for event in events]
        for thread in threads:
            thread.start()
        for _ in threads:
            toy.open_gate()
        for thread in threads:
            thread.join()
        for stream in (streams.h2d, streams.compute, streams.d2h):
            assert last_stamps(device, stream)

    def test_objects_of_another_device_are_refused(self, device: HostDevice, streams: Streams) -> None:
        class Foreign:
            name, kind = "foreign", "h2d"

        with pytest.raises(TypeError, match="event foreign belongs to another"):
            streams.h2d.wait(Foreign())
        with pytest.raises(TypeError, match="the h2d stream belongs to another"):
            device.event("done").record(Foreign())


def last_stamps(device, stream):
    return device.stamps(stream.queue, stream.submitted - 1, stream.submitted - 1)


class TestStamps:
    def test_are_ordered_and_inside_the_hosts_bracket(self, device: HostDevice, streams: Streams) -> None:
        stream, first = streams.compute, streams.compute.submitted
        before = perf_counter_ns()
        for _ in range(3):
            device.run("step", 0, stream, ECHO)
        assert stream.submitted == first + 3
        device.synchronize()
        after = perf_counter_ns()
        each = [device.stamps(stream.queue, op, op) for op in range(first, first + 3)]
        times = [time for stamps in each for time in stamps]
        assert before < times[0]
        assert times == sorted(times)
        assert times[-1] < after
        assert device.stamps(stream.queue, first, first + 2) == (times[0], times[-1])

    def test_waits_and_records_are_no_operations(self, device: HostDevice, streams: Streams) -> None:
        event = device.event("ready")
        device.run("h2d", 0, streams.h2d)
        event.record(streams.h2d)
        before = streams.compute.submitted
        streams.compute.wait(event)
        event.record(streams.compute)
        assert streams.compute.submitted == before

    def test_waiting_is_not_running(self, toy: Toy, device: HostDevice, streams: Streams) -> None:
        event = device.event("ready")
        device.run("step", 0, streams.h2d, GATED)
        event.record(streams.h2d)
        streams.compute.wait(event)
        device.run("step", 0, streams.compute, ECHO)
        opened_at = perf_counter_ns()
        toy.open_gate()
        device.synchronize()
        assert last_stamps(device, streams.h2d).start_ns < last_stamps(device, streams.h2d).end_ns
        assert opened_at < last_stamps(device, streams.compute).start_ns

    def test_the_ring_keeps_the_last_ones(self, device: HostDevice, streams: Streams) -> None:
        for _ in range(RING):
            device.run("d2h", 0, streams.d2h)
        device.synchronize()
        last = streams.d2h.submitted - 1
        assert device.stamps(streams.d2h.queue, last - RING + 2, last) is not None
        with pytest.raises(EngineError, match=f"operation {last - RING + 1} are lost: the last {RING}"):
            device.stamps(streams.d2h.queue, last - RING + 1, last)

    def test_a_parent_that_never_reads_holds_nothing_up(self, toy: Toy) -> None:
        """More bytes than the wake-up pipe can hold, none of them read before the end."""
        with toy.device(ring=8) as device:
            stream = device.streams(separate=False).d2h
            for _ in range(1 << 16):
                device.run("d2h", 0, stream)
            device.run("d2h", 0, stream)
            device.synchronize()
            assert last_stamps(device, stream) is not None


class TestFailure:
    @pytest.mark.parametrize(
        ("bucket", "error", "text"),
        [
            (FAIL, EngineError, "the device process failed to run step on slot 1: ValueError: the toy is broken"),
            (REFUSE, UsageError, "the toy refuses; ask for something else"),
            (DIE, EngineError, "the device process ended with status 7; set CBPROF_DEBUG=1 to see its messages"),
        ],
    )
    def test_of_an_operation(self, toy: Toy, bucket: int, error: type[Exception], text: str) -> None:
        with toy.device() as device:
            stream = device.streams(separate=True).compute
            device.run("step", 1, stream, bucket)
            for _ in range(2):
                with pytest.raises(error) as caught:
                    device.synchronize()
                assert (type(caught.value), str(caught.value)) == (error, text)
            with pytest.raises(error):
                device.run("step", 1, stream, ECHO)
        assert not is_running(device.pid)

    def test_killed(self, toy: Toy) -> None:
        with toy.device() as device:
            done, stream = device.event("done"), device.streams(separate=True).compute
            device.run("step", 0, stream, GATED)
            done.record(stream)
            os.kill(device.pid, signal.SIGKILL)
            with pytest.raises(EngineError, match="ended by signal 9"):
                done.synchronize()

    @pytest.mark.parametrize(
        ("factory", "error", "text"),
        [
            ("refuse_to_load", UsageError, "no such toy; choose another"),
            ("fail_to_load", EngineError, "the device process failed to load the model: MemoryError: toys are large"),
            ("exit_while_loading", EngineError, "the device process ended with status 9; set CBPROF_DEBUG=1 to see"),
            ("missing", EngineError, "the device process failed to load the model: AttributeError: module"),
        ],
    )
    def test_of_loading(
        self, toy: Toy, capfd: pytest.CaptureFixture[str], factory: str, error: type[Exception], text: str
    ) -> None:
        before = open_channels()
        with pytest.raises(error) as caught:
            toy.device(factory)
        assert type(caught.value) is error
        assert str(caught.value).startswith(text)
        assert "\n" not in str(caught.value)
        assert open_channels() == before
        assert capfd.readouterr() == ("", "")

    def test_debugging_shows_the_childs_traceback(
        self, toy: Toy, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CBPROF_DEBUG", "1")
        with pytest.raises(EngineError):
            toy.device("fail_to_load")
        assert "MemoryError" in capfd.readouterr().err

    def test_a_setup_that_cannot_be_sent(self, toy: Toy) -> None:
        before = open_channels()
        with pytest.raises(AttributeError, match="pickle"):
            HostDevice(lambda: None, LAYOUT, num_blocks=1, slots=1, buckets=(1,), factory="toy_host_model:ToyModel")
        assert open_channels() == before


class TestEnd:
    def test_close(self, toy: Toy) -> None:
        before = open_channels()
        device = toy.device()
        stream = device.streams(separate=True).h2d
        device.run("step", 0, stream, GATED)
        device.close()
        device.close()
        assert not is_running(device.pid)
        assert open_channels() == before
        assert device.slots[0].inputs.sum() == 0
        for use in (device.synchronize, lambda: device.run("h2d", 0, stream)):
            with pytest.raises(EngineError, match="was closed"):
                use()

    def test_an_error_in_the_with_block(self, toy: Toy) -> None:
        with pytest.raises(ZeroDivisionError), toy.device() as device:
            raise ZeroDivisionError
        assert not is_running(device.pid)

    def test_a_forgotten_device(self, toy: Toy) -> None:
        device = toy.device()
        event = device.event("done")
        event.record(device.streams(separate=True).h2d)
        pid = device.pid
        del device
        assert is_running(pid)  # the event could still be asked
        del event
        gc.collect()
        assert not is_running(pid)

    def test_nothing_has_a_name_in_the_file_system(self, device: HostDevice) -> None:
        maps = Path(f"/proc/{device.pid}/maps").read_text()
        assert "memfd:cbprof" in maps
        assert "/dev/shm" not in maps


class CtrlC(logging.Handler):
    """Presses Ctrl-C once something is said."""

    def emit(self, record: logging.LogRecord) -> None:
        self.said = record.getMessage()
        os.kill(os.getpid(), signal.SIGINT)


class TestSilence:
    @pytest.fixture
    def ctrl_c(self) -> Iterator[CtrlC]:
        handler = CtrlC()
        logging.getLogger("cbprof").addHandler(handler)
        yield handler
        logging.getLogger("cbprof").removeHandler(handler)

    def test_a_stopped_child_is_told_of_and_holds_up_no_ctrl_c(self, toy: Toy, ctrl_c: CtrlC) -> None:
        with toy.device() as device:
            device.run("step", 0, device.streams(separate=True).compute, GATED)
            os.kill(device.pid, signal.SIGSTOP)
            with pytest.raises(KeyboardInterrupt):
                device.synchronize()
            device.settle()  # goes on without the child
        assert ctrl_c.said == (
            f"cbprof: the device process (pid {device.pid}) is stopped: kill -CONT {device.pid} lets it go on, "
            "Ctrl-C ends the run"
        )
        assert not is_running(device.pid)

    def test_a_stopped_child_may_go_on(self, toy: Toy, caplog: pytest.LogCaptureFixture) -> None:
        class Continue(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                os.kill(device.pid, signal.SIGCONT)
                toy.open_gate()

        handler = Continue()
        logging.getLogger("cbprof").addHandler(handler)
        try:
            with toy.device() as device:
                device.run("step", 0, device.streams(separate=True).compute, GATED)
                os.kill(device.pid, signal.SIGSTOP)
                device.synchronize()
        finally:
            logging.getLogger("cbprof").removeHandler(handler)
        assert "is stopped" in caplog.text

    def test_a_child_that_hangs_is_told_of(self, toy: Toy, ctrl_c: CtrlC, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(patience, "IDLE_LOOKS", 1)
        monkeypatch.setattr(patience, "SETTLE_LOOKS", 1)
        with toy.device() as device:
            device.run("step", 0, device.streams(separate=True).compute, GATED)
            with pytest.raises(KeyboardInterrupt):
                device.synchronize()
            device.settle()
        assert "has done nothing for 1 s, though there is work: Ctrl-C ends the run" in ctrl_c.said

    def test_a_child_that_computes_is_given_time_and_each_thing_is_said_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        busy = [Activity(stopped=False, cpu=ticks) for ticks in range(30)]
        stopped = [Activity(stopped=True, cpu=30)] * 30
        looks = iter([*busy, *stopped])
        told = Patience(7, lambda _: next(looks))
        for _ in busy:
            told.look()
        assert caplog.text == ""
        for _ in stopped:
            told.look()
        assert [record.getMessage().partition(": kill")[0] for record in caplog.records] == [
            "cbprof: the device process (pid 7) is stopped"
        ]

    def test_a_child_that_loads_may_wait_for_a_disk(self, caplog: pytest.LogCaptureFixture) -> None:
        told = Patience(7, lambda _: Activity(stopped=False, cpu=0))
        for _ in range(30):
            told.look(loading=True)
        assert caplog.text == ""

    def test_a_system_that_does_not_say_is_believed(self, caplog: pytest.LogCaptureFixture) -> None:
        told = Patience(7, lambda _: None)
        for _ in range(30):
            told.look()
        assert (caplog.text, told.exhausted) == ("", True)


PARENT = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from test_host_device import GATED, LAYOUT, HostDevice, ToySpec
device = HostDevice(ToySpec({gate!r}), LAYOUT, num_blocks=1, slots=2, buckets=(1,), factory="toy_host_model:ToyModel")
streams = device.streams(separate=True)
for _ in range(3):
    device.run("step", 0, streams.compute, GATED)
def say(*words):
    print(*words, flush=True)
"""


class TestParent:
    """The parent is a process of its own here. Its child has three operations queued and is blocked in the first."""

    def start(self, toy: Toy, body: str) -> subprocess.Popen[str]:
        code = PARENT.format(tests=str(TESTS), gate=toy.spec.gate) + body
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def end(self, parent: subprocess.Popen[str], child: int) -> None:
        """Let the parent go on to its end, and wait until the child has exited too.

        Whoever inherits the child may reap it late or never, so its pid can outlive it; a pidfd tells the difference.
        """
        descriptor = os.pidfd_open(child)
        parent.communicate("\n", timeout=20)
        ended = select.select([descriptor], [], [], 20)[0]
        os.close(descriptor)
        assert ended, "the device process outlived its parent"

    @pytest.mark.parametrize(
        "ending",
        [
            "device.close()",
            "raise SystemExit",
            "1 / 0",
            "os.kill(os.getpid(), signal.SIGTERM)",
            "os.kill(os.getpid(), signal.SIGKILL)",
            "os._exit(0)",
        ],
    )
    def test_takes_its_child_along(self, toy: Toy, ending: str) -> None:
        with self.start(toy, f"say(device.pid); sys.stdin.readline(); {ending}") as parent:
            self.end(parent, int(parent.stdout.readline()))

    def test_forks_do_not_keep_the_child(self, toy: Toy) -> None:
        """The fork lives on with a copy of all that its parent had, after a ``close`` that is none of its business."""
        body = """
import warnings; warnings.simplefilter("ignore")
fork = os.fork()
if not fork:
    device.close()
    for descriptor in range(3):
        os.close(descriptor)
    signal.pause()
say(device.pid, fork)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
        with self.start(toy, body) as parent:
            child, fork = map(int, parent.stdout.readline().split())
            try:
                self.end(parent, child)
            finally:
                os.kill(fork, signal.SIGKILL)

    def test_ctrl_c_is_for_the_parent(self, toy: Toy) -> None:
        body = """
try:
    say(device.pid)
    device.synchronize()
except KeyboardInterrupt:
    say("interrupted")
device.synchronize()
say("done")
"""
        with self.start(toy, body) as parent:
            child = int(parent.stdout.readline())
            os.kill(child, signal.SIGINT)
            os.killpg(parent.pid, signal.SIGINT)
            assert parent.stdout.readline() == "interrupted\n"
            for _ in range(3):
                toy.open_gate()
            assert parent.stdout.readline() == "done\n"
        assert parent.returncode == 0


def test_the_real_model_gives_the_tokens_that_it_gives_in_process() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from cbprof.engine.model.runner import Runner
    from cbprof.engine.model.spec import ModelSpec

    layout = SlotLayout(max_tokens=8, max_requests=2, max_blocks=2, block_size=4)
    spec = ModelSpec("tiny")
    fields = {  # one request of five tokens, in blocks 3 and 1; block 4 is scratch, and gets three rows of padding
        "input_ids": [11, 22, 33, 44, 55, 0, 0, 0],
        "carry": [-1] * 8,
        "positions": [0, 1, 2, 3, 4, 0, 0, 0],
        "write_at": [12, 13, 14, 15, 4, 16, 16, 16],
        "query_start": [0, 5, 5],
        "context": [5, 0],
        "block_table": [3, 1, 0, 0],
        "sample_at": [4, 0],
    }
    batch = np.zeros(layout.input_size, np.int32)
    for name, values in fields.items():
        batch[layout.fields[name].offset : layout.fields[name].stop] = values

    runner = Runner(spec, layout, num_blocks=4, slots=2, device=torch.device("cpu"))
    runner.inputs[1].copy_(torch.from_numpy(batch))
    runner.step(1, 8)

    with HostDevice(spec, layout, num_blocks=4, slots=2, buckets=(8,)) as device:
        assert device.facts == runner.facts
        streams = device.streams(separate=False)
        device.slots[1].inputs[:] = batch
        device.run("h2d", 1, streams.h2d)
        device.run("step", 1, streams.compute, 8)
        device.run("d2h", 1, streams.d2h)
        device.synchronize()
        assert device.slots[1].output[0] == runner.outputs[1][0]
