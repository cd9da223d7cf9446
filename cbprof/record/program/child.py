"""Inside a program that ``cbprof record`` started: wait for something to record, and record it.

Until the program imports torch or a :class:`~cbprof.record.tracer.Tracer`, nothing happens here and nothing is
loaded. From then on one thread does all that takes time: start and stop, torch.profiler, files, the status.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from queue import SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cbprof.record.program.import_hook import AfterImport
from cbprof.record.program.settings import Settings
from cbprof.record.program.status import Status, claim
from cbprof.record.wrapping import Wrappings

if TYPE_CHECKING:
    from cbprof.record.program.session import Session

CONTINUOUS_BATCHING = "transformers.generation.continuous_batching.continuous_api"

VLLM = "vllm.version"
"""A module of vLLM's that every process of it imports early, before those that are wrapped."""


class Child:
    """A recorded process. ``signals`` counts the SIGUSR2 that came before there was a session to toggle."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._parents: Session | None = None
        self._asleep_for_good = False
        self._by_signal = True
        self._early: SimpleQueue[None] = SimpleQueue()
        self._forks = 0
        self._exec = Wrappings()
        self._status = Status(pid=os.getpid(), python=sys.executable)

    def begin(self, *, by_signal: bool = True) -> None:
        """Watch for imports, forks and the exit, and for the signal, if that is asked for."""
        _of_this_process.append(self)
        self._status = self._status._replace(image=claim(self._settings.folder, str(os.getpid())))
        self._status.write(self._settings.folder)
        self._by_signal = by_signal
        for name in ("execv", "execve"):  # which all others of os call
            self._exec.wrap(os, name, self._flushed_before)
        if by_signal:
            signal.signal(signal.SIGUSR2, self._toggle)
        atexit.register(self._end)
        os.register_at_fork(after_in_parent=self._forked, after_in_child=self._forget)
        AfterImport(
            {
                "torch.cuda": self._torch_is_there,
                CONTINUOUS_BATCHING: self._transformers_is_there,
                "cbprof.record.tracer": self._tracer_is_there,
                VLLM: self._vllm_is_there,
                "sglang": self._sglang_is_there,
            }
        ).install()

    def _flushed_before(self, replace: Callable[..., Any]) -> Callable[..., Any]:
        """Around a function that replaces the program: what was recorded is on disk before it does, or fails to."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._session is not None:
                self._session.flush()
            return replace(*args, **kwargs)

        return call

    def _torch_is_there(self, module: ModuleType) -> None:
        if session := self._wake():
            session.watch_cuda(module)

    def _transformers_is_there(self, module: ModuleType) -> None:
        if session := self._wake():
            session.watch_transformers()

    def _tracer_is_there(self, module: ModuleType) -> None:
        self._wake()

    def _vllm_is_there(self, module: ModuleType) -> None:
        if session := self._wake():
            session.watch_vllm(self._engine_begins)

    def _sglang_is_there(self, module: ModuleType) -> None:
        self._status = self._status._replace(sglang=True)
        if self._session is not None:
            self._session.saw_sglang()

    def _engine_begins(self) -> None:
        """vLLM makes an engine or a worker in this process. In one that was forked off, a recording begins with it."""
        parents, self._parents = self._parents, None
        if parents is not None:
            self._asleep_for_good = False
            session = self._wake()
            if session is not None:
                session.go_on_from(parents)
            _at_exit_of_a_fork(self._end)

    def end(self, *, complete: bool) -> None:
        """Finish what is recorded, here and in the engine's processes, and leave everything as it was."""
        self._exec.undo()
        atexit.unregister(self._end)
        session, self._session, self._asleep_for_good = self._session, None, True
        if session is not None:
            session.switch_the_others()
            session.end(complete=complete)._replace(forks=self._forks).write(self._settings.folder)
            session.leave()
        _of_this_process.remove(self)

    def _wake(self) -> Session | None:
        """The session, begun when it is first needed. None in a forked process, or while the session is being made."""
        if self._session is None and not self._asleep_for_good:
            self._asleep_for_good = True  # importing the session calls us again
            from cbprof.record.program.session import Session

            self._session = Session(self._settings, self._status)
            self._session.begin()
            while not self._early.empty():
                self._early.get()
                self._session.toggle()
        return self._session

    def _toggle(self, *_: object) -> None:
        """On the main thread, between any two instructions of it: only hand it on."""
        if self._session is not None:
            self._session.toggle()
        else:
            self._early.put(None)

    def _forked(self) -> None:
        self._forks += 1

    def _forget(self) -> None:
        """In a process forked off: it is not recorded, and says nothing, unless it turns out to be one of vLLM's."""
        atexit.unregister(self._end)
        if self._by_signal:
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        if self._session is not None:
            self._session.forget()
            self._parents = self._session
        self._asleep_for_good, self._session = True, None
        self._forks = 0
        self._status = Status(pid=os.getpid(), python=sys.executable, forked_from=self._status.pid)

    def _end(self) -> None:
        raised = getattr(sys, "last_value", None) is not None  # the interpreter has shown an error that nobody caught
        status = self._session.end(complete=not raised) if self._session is not None else self._status
        status._replace(forks=self._forks).write(self._settings.folder)


def _at_exit_of_a_fork(end: Callable[[], None]) -> None:
    """A process that multiprocessing has forked ends without atexit, but not without its own finalizers."""
    from multiprocessing.util import Finalize

    Finalize(None, end, exitpriority=0)


_of_this_process: list[Child] = []
"""One at most: two would record the same into the same file."""


def begin() -> None:
    """Called when the interpreter starts, and again by vLLM, whose plug-in this is, in each of its processes: there it
    matters where the interpreter was told not to look (``python -I``)."""
    settings = Settings.from_environment()
    if settings is not None and not _of_this_process:
        Child(settings).begin()
