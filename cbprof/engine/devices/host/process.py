"""The parent's side of the child process that plays the GPU: its birth, its death, and how to wait for its work."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

from cbprof.engine.devices.host.patience import LOOK_S, Patience
from cbprof.engine.devices.host.wire import COMMAND, QUEUES, Setup, SharedMemory, anonymous_file
from cbprof.engine.layout import SlotLayout
from cbprof.errors import CbprofError, EngineError

if TYPE_CHECKING:
    from cbprof.engine.model.spec import ModelFacts, ModelSpec


class DeviceProcess:
    """One child process with its pipes and the memory shared with it.

    Nothing here refers back to the device that uses it, so a forgotten device is collected, and its child with it.
    """

    def __init__(
        self, factory: str, spec: ModelSpec, layout: SlotLayout, *, num_blocks: int, slots: int, ring: int
    ) -> None:
        queues = [os.pipe() for _ in QUEUES]
        wake_read, wake_write = os.pipe()
        memory = anonymous_file()
        self._control, control = Pipe()
        self._commands = [FileIO(write_end, "w") for _, write_end in queues]
        self._wake = FileIO(wake_read, "r")
        self._woken = select.poll()
        self._woken.register(wake_read, select.POLLIN)
        self._reading = threading.Lock()
        self._death: CbprofError | None = None
        pipes = tuple(read_end for read_end, _ in queues)
        inherited = (memory, wake_write, *pipes)
        try:
            self.memory = SharedMemory.map(memory, layout, slots=slots, ring=ring)
            self._child = _spawn(control.fileno(), inherited)
        finally:
            # The child has its copies. Kept open here, they would hide its death: a pipe ends with its last writer.
            control.close()
            for descriptor in inherited:
                os.close(descriptor)
        self._patience = Patience(self._child.pid)
        self._end = weakref.finalize(self, _end, self._child, self._ends)
        _running.add(self)
        try:
            self.facts = self._load(Setup(factory, spec, layout, num_blocks, slots, ring, memory, pipes, wake_write))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def send(self, queue: int, code: int, target: int, number: int) -> None:
        """Queue one command; blocks only while the child is thousands of commands behind."""
        try:
            self._commands[queue].write(COMMAND.pack(code, target, number))
        except (BrokenPipeError, ValueError):  # the child is dead, or the pipe closed
            raise self._why_dead() from None

    def wait_done(self, queue: int, count: int) -> None:
        """Block, without spinning, until ``count`` commands of ``queue`` are done.

        The child counts and then writes a byte, so where the count is still short a byte is yet to come; which one
        does not matter. The lock keeps one thread from reading the byte that another is waiting for. A child that is
        stopped, or does nothing, is told of on stderr, and waited for.
        """
        done = self.memory.done
        if done[queue] >= count:
            return
        with self._reading:
            while done[queue] < count:
                self._await_byte()

    def settle(self, counts: Sequence[int]) -> None:
        """Wait until as many commands of each queue are done, for as long as the child gets on. Raises nothing."""
        done = self.memory.done
        with self._reading, suppress(CbprofError):
            self._patience.silent = 0
            while any(done[queue] < count for queue, count in enumerate(counts)) and not self._patience.exhausted:
                self._await_byte()

    def _await_byte(self) -> None:
        """Block until the child has finished something, or has not for some time."""
        if not self._wake.closed and not self._woken.poll(LOOK_S * 1000):
            self._patience.look()
        elif self._wake.closed or not self._wake.read(1 << 16):
            raise self._why_dead()
        else:
            self._patience.answered()

    def close(self) -> None:
        """End the child. Safe to call twice."""
        self._end()

    def disown(self) -> None:
        """Let go of the child without ending it."""
        self._end.detach()
        _close(self._ends)

    @property
    def _ends(self) -> tuple[Connection | FileIO, ...]:
        return (self._control, self._wake, *self._commands)

    def _load(self, setup: Setup) -> ModelFacts:
        """Have the child build its model, and raise what it raises; what there is to know of the model."""
        try:
            self._control.send(setup)
            while not self._control.poll(LOOK_S):
                self._patience.look(loading=True)
            reply: ModelFacts | CbprofError = self._control.recv()
        except (EOFError, OSError):
            raise self._why_dead() from None
        if isinstance(reply, CbprofError):
            raise reply
        return reply

    def _why_dead(self) -> CbprofError:
        """Why the child does not answer: its last words, or how it ended."""
        if self._death is None:
            self._death = self._last_words()
        return self._death

    def _last_words(self) -> CbprofError:
        if not self._end.alive:
            return EngineError("the device process was closed and cannot run anything more; make a new device")
        status = self._child.wait()  # one of its pipes has ended: so it is on its way out
        try:
            error = self._control.recv()
            if isinstance(error, CbprofError):
                return error
        except (EOFError, OSError):
            pass
        if status < 0:
            return EngineError(
                f"the device process was ended by signal {-status} ({signal.strsignal(-status)}); "
                "if memory ran out, take a smaller model or fewer KV blocks"
            )
        return EngineError(f"the device process ended with status {status}; set CBPROF_DEBUG=1 to see its messages")


def _spawn(control: int, inherited: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start the child: silent unless debugging, importing what we can import, out of the reach of Ctrl-C."""
    debug = bool(os.environ.get("CBPROF_DEBUG"))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cbprof.engine.devices.host.child", str(control)],
        pass_fds=(control, *inherited),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)},
        process_group=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if debug else subprocess.DEVNULL,
    )


def _end(child: subprocess.Popen[bytes], ends: Sequence[Connection | FileIO]) -> None:
    """Kill the child: it owns nothing that outlives it, so it need not be asked."""
    child.kill()
    child.wait()
    _close(ends)


def _close(ends: Sequence[Connection | FileIO]) -> None:
    for end in ends:
        end.close()


_running: weakref.WeakSet[DeviceProcess] = weakref.WeakSet()


def _disown_all() -> None:
    """In a fork of this process: let go of children that are not its own, and of pipes that it would hold open."""
    for process in list(_running):
        process.disown()


os.register_at_fork(after_in_child=_disown_all)
