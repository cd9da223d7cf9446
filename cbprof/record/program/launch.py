"""Start a program, and wait beside it until it ends.

The program has the terminal, the input and the output to itself, and its exit code becomes ours. The terminal's signals
(Ctrl-C, Ctrl-\\) reach the whole process group, so both of us; signals sent to us alone are handed on.

Signals are waited for on the one thread that blocks them: another one, which numpy starts when it is imported, would
take them, and die of them. So nothing that imports it may be imported before the program has ended.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cbprof.engine.placement import Placement
from cbprof.errors import UsageError
from cbprof.files import split_suffix
from cbprof.record.program.settings import Settings
from cbprof.record.program.status import Status, read_all

INJECTED = Path(__file__).parent / "inject"

HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

LOOK_S = 0.25
"""How often the status of the program is read."""


class Ended(NamedTuple):
    """How a program ended: with ``code``, or by ``signal`` (0 if not). ``processes``: the Pythons in it that spoke."""

    pid: int
    code: int
    signal: int
    processes: tuple[Status, ...]

    @property
    def by(self) -> str:
        """``SIGKILL``, or nothing."""
        return signal.Signals(self.signal).name if self.signal else ""


def in_the_way(out: Path, environment: Mapping[str, str]) -> list[Path]:
    """The files of an older recording that one to ``out`` could replace: those of each number, with the kernels beside
    them, and of each rank unless the environment says which one this process is."""
    try:
        placement = Placement.from_environment(environment)
    except UsageError:  # the program will tell
        placement = Placement()
    alone, suffix = split_suffix(out.name)
    if placement.world_size == 1:
        stem = re.escape(re.sub(r"\.rank\d{5}$", "", alone)) + r"(\.rank\d{5})?"
    else:
        stem = re.escape(split_suffix(placement.path(out).name)[0])
    names = re.compile(rf"{stem}(\.\d+)?({re.escape(suffix)}|\.cupti\.json\.gz)")
    return sorted(each for each in out.parent.iterdir() if names.fullmatch(each.name))


def launch(command: Sequence[str], settings: Settings, watch: Callable[[int, list[Status]], None]) -> Ended:
    """Run ``command`` to its end, recorded as ``settings`` say, with a folder of its own for the statuses.

    ``watch`` is given its pid and the statuses a few times a second. A ``.py`` file is run by the Python that runs us.
    Raises :class:`UsageError` if there is no such program.
    """
    program = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    if shutil.which(program[0]) is None:
        raise UsageError(f"there is no program {program[0]!r} that can be run: give one, such as -- python serve.py")
    if program != list(command) and not Path(command[0]).is_file():
        raise UsageError(f"{command[0]}: there is no such file")
    with tempfile.TemporaryDirectory(prefix="cbprof-", ignore_cleanup_errors=True) as folder:
        environment = os.environ | environment_for(settings._replace(folder=folder))
        watched = {*HANDED_ON, signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        try:
            pid = os.posix_spawnp(
                program[0],
                program,
                environment,
                setsigmask=before,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores, and a program inherits
            )
            status = _stay_beside(pid, Path(folder), watch)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = os.waitstatus_to_exitcode(status)
        return Ended(pid, max(code, 0), max(-code, 0), tuple(read_all(Path(folder))))


def _stay_beside(pid: int, folder: Path, watch: Callable[[int, list[Status]], None]) -> int:
    """Hand on signals until the program has ended; its wait status."""
    while True:
        came = signal.sigtimedwait({*HANDED_ON, signal.SIGCHLD}, LOOK_S)
        if came is not None and came.si_signo != signal.SIGCHLD and came.si_code <= 0:  # sent by a process
            _hand_on(signal.Signals(came.si_signo), pid, folder)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        watch(pid, read_all(folder))


def _hand_on(what: signal.Signals, pid: int, folder: Path) -> None:
    """SIGUSR2 ends a process that does not expect it: only to one that has said that it does."""
    if what == signal.SIGUSR2 and not any(status.pid == pid and status.has_cbprof for status in read_all(folder)):
        return
    os.kill(pid, what)


def environment_for(settings: Settings) -> dict[str, str]:
    """What makes every Python that is started with it record, beside what the environment is."""
    search = os.pathsep.join(filter(None, (str(INJECTED), os.environ.get("PYTHONPATH"))))
    return {**settings.to_environment(), "PYTHONPATH": search}


def exit_like(ended: Ended) -> int:
    """The exit code to end with. If a signal killed the program, the same signal ends this process."""
    if ended.signal:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump is enough
        if ended.signal not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(ended.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ended.signal)
    return ended.code
