"""A second process that decodes some of the batches of a large file: the decoder holds the GIL, so threads do not help.

::

    this process   reads, finds where batches end, decodes every batch that the helper has no room for
    the helper     decodes the batches that it is given, and sends all their columns at the end

The helper is a plain child process on two pipes rather than a pool of ``multiprocessing``, which would run the main
script of whoever calls :func:`cbprof.load` once more. It starts with ``-P``: modules in the current folder are not run.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, NamedTuple

from cbprof.formats.kineto.columns import Collector
from cbprof.formats.kineto.events import FLOAT_TIMES, TEXT_TIMES, MalformedError, decode_batch

_HEADER = struct.Struct("<qqq")  # place, offset in the file (or -1: the text follows), length
_INLINE = -1
_BEGUN = b"."  # what the helper answers when it begins a batch
_AHEAD = 8  # batches that it has been given and not begun: it never runs dry, and at the end little is left to do
_PIPE_BYTES = 1 << 20  # if the system grants it, which it does to a user only so often: room for the text of batches


class HelperError(Exception):
    """The helper could not decode a batch, or died; the file is to be read without it."""


class _Task(NamedTuple):
    place: int
    offset: int
    length: int
    text: bytes


class Helper:
    """The helper's end in this process. Use it as a context manager: it leaves no process behind.

    ``descriptor``: of the file, as it is open in this process; another file may have its name by now. Raises
    :class:`HelperError` where the system has no process to give.
    """

    def __init__(self, descriptor: int) -> None:
        package = Path(__file__).parents[3]
        paths = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cbprof.formats.kineto.helper", str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
            )
        except OSError:
            raise HelperError from None
        with suppress(ImportError, AttributeError, OSError):
            from fcntl import F_SETPIPE_SZ, fcntl  # of Linux alone

            fcntl(_open(self._process.stdin), F_SETPIPE_SZ, _PIPE_BYTES)
        self._tasks: Queue[_Task | None] = Queue(1)
        self._n_given = 0
        self._broken = False
        self._feeder = Thread(target=self._feed, name="feed helper", daemon=True)
        self._feeder.start()

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._broken = True
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        self._tasks.put(None)
        self._feeder.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                _open(pipe).close()
        self._process.wait()

    def take(self, place: int, text: bytes, length: int, offset: int | None) -> bool:
        """Give it a batch, the first ``length`` bytes of ``text``, if it has room. Says whether it had.

        ``place``: of the batch among all. ``offset``: of the text in the file, where that is not gzip.
        Raises :class:`HelperError` where an earlier batch has failed.
        """
        if self._broken:
            raise HelperError
        if self._tasks.full():  # nobody else fills it
            return False
        inline = offset is None
        self._tasks.put(_Task(place, _INLINE if offset is None else offset, length, text[:length] if inline else b""))
        return True

    def finish(self) -> Collector:
        """What it has collected. Raises :class:`HelperError` where any batch has failed."""
        self._tasks.put(None)
        self._feeder.join()
        answers = _open(self._process.stdout)
        try:
            answers.read(min(self._n_given, _AHEAD) * len(_BEGUN))  # those that nobody has waited for
            collector = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):
            raise HelperError from None
        if not isinstance(collector, Collector):
            raise HelperError
        return collector

    def _feed(self) -> None:
        """Write the tasks to the helper, until there are no more (None), and keep it a few batches behind at most."""
        pipe, answers = _open(self._process.stdin), _open(self._process.stdout)
        while (task := self._tasks.get()) is not None:
            try:
                pipe.write(_HEADER.pack(task.place, task.offset, task.length) + task.text)
                pipe.flush()
                self._n_given += 1
                if self._n_given > _AHEAD:
                    self._broken |= answers.read(len(_BEGUN)) != _BEGUN
            except (OSError, ValueError):
                self._broken = True
        with suppress(OSError):
            pipe.close()


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # both are pipes, by construction
    return pipe


def is_worth_it() -> bool:
    """Whether a second process can run beside this one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and bool(sys.executable)


def main() -> None:
    """The helper: decode batches from stdin until it closes, then write everything to stdout."""
    tasks, collector, record = sys.stdin.buffer, Collector(), FLOAT_TIMES
    descriptor = int(sys.argv[1])
    while header := tasks.read(_HEADER.size):
        place, offset, length = _HEADER.unpack(header)
        sys.stdout.buffer.write(_BEGUN)
        sys.stdout.buffer.flush()
        text = tasks.read(length) if offset == _INLINE else os.pread(descriptor, length, offset)
        try:
            collector.add(decode_batch(place, text, record))
        except MalformedError:
            sys.exit(1)
        record = TEXT_TIMES if collector.needs_text else record
    pickle.dump(collector, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
