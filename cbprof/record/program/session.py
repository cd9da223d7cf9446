"""The recordings of one process: on, off, on again, each to a file of its own."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any, Literal, NamedTuple

from cbprof.engine.placement import Placement
from cbprof.errors import CbprofError
from cbprof.formats.processes import PROCESS
from cbprof.meta import Meta
from cbprof.record.clocks.choice import cuda_is_up, cuda_or_host_clock
from cbprof.record.engines.transformers.attach import Instrumented
from cbprof.record.engines.vllm.attach import VllmHooks
from cbprof.record.engines.vllm.points import MODULES as VLLM_MODULES
from cbprof.record.program.cuda_calls import wrap_cuda
from cbprof.record.program.import_hook import AfterImport
from cbprof.record.program.lazy_file import LazyFile
from cbprof.record.program.profiler import Profiler
from cbprof.record.program.settings import Settings
from cbprof.record.program.status import Status, toggle, toggles
from cbprof.record.tracer import HostTracer
from cbprof.record.wrapping import Wrappings
from cbprof.trace import SpanSink

STATUS_PERIOD_S = 0.5


class _Order(NamedTuple):
    """What the session's thread is to do; ``done`` is set when it has."""

    what: Literal["start", "stop", "toggle", "switch others", "tell", "flush", "end"]
    done: threading.Event


class Session:
    """Starts and stops the recordings of a process. Its thread does the work; others give orders."""

    def __init__(self, settings: Settings, status: Status) -> None:
        self._settings = settings
        self._status = status._replace(torch=False)  # until it is known to be whole
        self._tracer = _SessionTracer(self)
        self._profiler = Profiler() if settings.cupti else None
        self._instrumented: Instrumented | None = None
        self._vllm: VllmHooks | None = None
        self._cuda: Wrappings | None = None
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="cbprof session", daemon=True)
        self._steps_begun = 0
        self._recordings = 0
        self._toggles = 0
        self._origin_ns = 0
        self._stopped = False
        self._engine_has_ended = False
        self._complete = True

    def begin(self) -> None:
        """Take in the tracers of the program, and record from now on unless a step or a signal is to come first."""
        self._tracer.host()
        self._thread.start()
        if self._settings.steps is None and not self._settings.on_signal:
            self._order("start")

    def watch_cuda(self, module: ModuleType) -> None:
        """torch.cuda has been imported."""
        self._status = self._status._replace(torch=True)
        self._cuda = wrap_cuda(module, self._tracer, self._engine_is_under_way_here)

    def _engine_is_under_way_here(self) -> bool:
        if self._vllm is not None and self._vllm.under_way_here():
            return True
        return self._instrumented is not None and self._instrumented.under_way_here()

    def watch_transformers(self) -> None:
        """The continuous batching of transformers has been imported."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._instrumented = Instrumented(self._tracer, self.step_begins, self._note)
        for warning in caught:
            self._note(str(warning.message))

    def watch_vllm(self, begins: Callable[[], None]) -> None:
        """vLLM is being imported: wrap each of its modules when it is there. ``begins`` is called when an engine is."""
        self._status = self._status._replace(vllm=True)
        self._vllm = VllmHooks(self._tracer, begins, self.engine_ends, self.step_begins, self._note)
        AfterImport(dict.fromkeys(VLLM_MODULES, self._vllm.instrument)).install()

    def go_on_from(self, parents: Session) -> None:
        """In a process forked off from the one of ``parents``: what is wrapped stays so, and is recorded here."""
        self._vllm, self._instrumented = parents._vllm, parents._instrumented
        self._status = self._status._replace(vllm=self._vllm is not None)
        if self._vllm is not None:
            self._vllm.feeds(self._tracer, self.engine_ends, self.step_begins, self._note)
        if parents._cuda is not None:
            parents._cuda.undo()
            self.watch_cuda(sys.modules["torch.cuda"])

    def saw_sglang(self) -> None:
        """It has been imported, and is not recorded by its phases."""
        self._status = self._status._replace(sglang=True)

    def flush(self) -> None:
        """Put on disk what has been recorded, before the program may be replaced by another."""
        self._order("flush")

    def engine_ends(self, complete: bool) -> None:
        """A process that is there for its engine alone shuts down, and may be killed: finish the file now."""
        self._complete = complete
        self._stopped = self._engine_has_ended = True
        self._order("stop")

    def step_begins(self, number: int) -> None:
        """On an engine's thread, before the first span of a step: a window begins and ends exactly here."""
        self._steps_begun = max(self._steps_begun, number + 1)
        if self._settings.steps is None or self._stopped:
            return
        first, last = self._settings.steps
        if number >= last:
            self._stopped = True
            self._order("stop")
        elif number >= first and not self._tracer.on:
            self._order("start")

    def toggle(self) -> None:
        """From a signal handler: wait for nothing."""
        self._orders.put(_Order("toggle", threading.Event()))

    def switch_the_others(self) -> None:
        """The other processes of the engine, which this one's end would leave recording, stop."""
        self._order("switch others")

    def file_begins(self) -> None:
        """On the drain's thread: write the file's name into the status soon, in case the process is killed."""
        self._orders.put(_Order("tell", threading.Event()))

    def end(self, *, complete: bool) -> Status:
        """The process ends: finish what is being recorded, and say how it went."""
        self._complete &= complete
        self._order("end")
        return self._status

    def leave(self) -> None:
        """What was wrapped is put back, and tracers are nobody's guests any more."""
        for wrapped in (self._cuda, self._vllm, self._instrumented):
            if wrapped is not None:
                wrapped.undo()
        self._tracer.leave()

    def forget(self) -> None:
        """In a process forked off, which has no thread to carry anything out: no steps are waited for any more."""
        self._stopped = True
        self._tracer.leave()

    def _order(self, what: Literal["start", "stop", "switch others", "flush", "end"]) -> None:
        order = _Order(what, threading.Event())
        self._orders.put(order)
        order.done.wait()

    # On the session's thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        order = None
        while order is None or order.what != "end":
            try:
                order = self._orders.get(timeout=self._until_next_look_s())
            except Empty:
                order = None
            try:
                self._carry_out(order)
            except Exception as error:  # the program must not suffer from its recorder
                self._note(f"the recorder failed: {error or type(error).__name__}")
            self._tell()
            if order is not None:
                order.done.set()

    def _carry_out(self, order: _Order | None) -> None:
        if self._others_toggled():
            self._switch()
        if order is None or order.what == "tell":
            if self._time_is_up():
                self._stop(complete=True)
            elif self._profiler is not None and self._tracer.on:
                self._profiler.start_where_cuda_is_up()
        elif order.what == "toggle":
            self._switch_the_others()
            self._switch()
        elif order.what == "switch others":
            self._switch_the_others()
        elif order.what == "start":
            self._start()
        elif order.what == "flush":
            if (recorder := self._tracer.recorder) is not None:
                recorder.drain(hurry=True)
        else:
            self._stop(complete=self._complete)

    def _switch(self) -> None:
        """On if it was off, else off: by a signal, or because another process of the engine got one."""
        self._status = self._status._replace(signals=self._status.signals + 1)
        if self._tracer.on:
            self._stop(complete=self._complete)
        elif not self._engine_has_ended:
            self._start()

    def _switch_the_others(self) -> None:
        if self._vllm is not None:
            toggle(self._settings.folder)
            self._toggles += 1

    def _others_toggled(self) -> bool:
        """Whether the processes of vLLM are to be switched, of which this is one: a signal reaches but one of them."""
        if self._vllm is None:
            return False
        ahead = toggles(self._settings.folder) - self._toggles
        self._toggles += ahead
        return ahead % 2 == 1

    def _start(self) -> None:
        if self._profiler is not None:
            self._profiler.start_where_cuda_is_up()
        if self._instrumented is not None and not self._tracer.on:
            self._instrumented.forget_batches()
        begins = not self._tracer.on
        self._tracer.start()
        if begins and (recorder := self._tracer.recorder) is not None:
            self._recordings += 1
            self._origin_ns = recorder.origin_ns
        atexit.unregister(self._tracer.close)  # it is closed here, or at the end of the process by `end`

    def _stop(self, *, complete: bool) -> None:
        if not self._tracer.on:
            return
        file = self._tracer.file
        self._tracer.meta |= self._describe()
        if self._vllm is not None and (remark := self._vllm.remark()):
            self._note(remark)
        self._status = self._status._replace(engine=str(self._tracer.meta.get("engine", "")))
        if self._profiler is not None:
            with self._noted("the kernels were lost"):
                self._profiler.stop()
        recorded, lost = None, ""
        try:
            recorded = self._tracer.close(complete=complete)
        except CbprofError as error:
            self._note(str(error))
            lost = file.part
        if self._profiler is not None:  # now that the drain has begun the file, if ever it will
            with self._noted("the kernels were not written"):
                self._profiler.write(file.name)
        finished = () if file.path is None or recorded is None else (str(file.path),)
        self._status = self._status._replace(
            files=self._status.files + finished,
            lost=(*self._status.lost, lost) if recorded is None else self._status.lost,
            cupti=() if self._profiler is None else tuple(self._profiler.files),
            spans=self._status.spans + (recorded.spans if recorded else 0),
            device_spans=self._status.device_spans or file.has_device_spans,
        )

    def _describe(self) -> dict[str, Any]:
        """What the engines that were recorded say of themselves."""
        meta: dict[str, Any] = {}
        for guest in self._tracer.recorded_guests:
            meta |= guest.meta
        if self._instrumented is not None and self._instrumented.saw_batches:
            meta |= self._instrumented.describe()
        return meta | self.part_facts() | ({PROCESS: {**self._process_facts(), "ended": True}} if self._vllm else {})

    def part_facts(self) -> dict[str, Any]:
        """What the file of one of several processes says at its beginning; empty where the program has but one."""
        if self._vllm is None:
            return {}
        return (self._vllm.describe() if self._vllm.role else {}) | {PROCESS: self._process_facts()}

    def _process_facts(self) -> dict[str, Any]:
        assert self._vllm is not None
        return {
            "pid": os.getpid(),
            "role": self._vllm.role,
            "replica": self._vllm.replica,
            "origin_ns": self._origin_ns,
            "recording": self._recordings,
            "run": os.path.basename(self._settings.folder),
        }

    def _time_is_up(self) -> bool:
        began_s = self._tracer.file.began_s if self._tracer.on else None
        return (
            self._settings.seconds is not None
            and began_s is not None
            and (time.monotonic() >= began_s + self._settings.seconds)
        )

    def _until_next_look_s(self) -> float:
        seconds = self._settings.seconds
        if seconds is None or not self._tracer.on or self._tracer.file.began_s is None:
            return STATUS_PERIOD_S
        return min(STATUS_PERIOD_S, max(0.0, self._tracer.file.began_s + seconds - time.monotonic()))

    @contextmanager
    def _noted(self, failure: str) -> Iterator[None]:
        """Turn an error of the block into a note, so that what comes after it is still done."""
        try:
            yield
        except Exception as error:
            self._note(f"{failure}: {error or type(error).__name__}")

    def _note(self, text: str) -> None:
        self._status = self._status._replace(notes=(*self._status.notes, " ".join(text.split())))

    def _tell(self) -> None:
        recorder = self._tracer.recorder
        activity = None if recorder is None else recorder.activity()
        self._status = self._status._replace(
            recording=recorder is not None,
            cuda=cuda_is_up(),
            steps=self._steps_begun,
            role="" if self._vllm is None else self._vllm.role,
            tokens=0 if recorder is None else recorder.token_count,
            cells=() if activity is None else activity.cells,
            part=self._tracer.part,
            at_s=time.monotonic(),
            figures=recorder.meter().figures() if self._settings.metrics and recorder is not None else {},
        )
        self._status.write(self._settings.folder)


class _SessionTracer(HostTracer):
    """The tracer whose recordings are the session's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.file = LazyFile(session._settings, session.file_begins)
        super().__init__(self.file, device=cuda_or_host_clock)

    @property
    def part(self) -> str:
        """The file being written, if there is any."""
        return self.file.part if self.on else ""

    def step_begins(self, number: int) -> None:
        self._session.step_begins(number)

    def _open(self, placement: Placement) -> SpanSink:
        self.meta = {"base_time_ns": self.meta["base_time_ns"]}  # what the last recording was of, this one need not be
        self.file = LazyFile(
            self._session._settings, self._session.file_begins, Meta.parse(self.meta), self._session.part_facts
        )
        return self.file
