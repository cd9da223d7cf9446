"""``cbprof.attach("vllm")``: what ``cbprof record`` does to a program, for a block of one that runs already."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from cbprof.errors import UsageError
from cbprof.record.program.child import Child
from cbprof.record.program.launch import environment_for
from cbprof.record.program.merge import with_merged_files
from cbprof.record.program.settings import VARIABLE, Settings
from cbprof.record.program.status import read_all
from cbprof.record.wrapping import with_context

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE_S = 10.0
"""How long the processes of an engine that goes on get to finish their files."""


class VllmAttachment:
    """A context manager and a decorator. Inside, every process of vLLM is recorded: this one, and those that it makes,
    by way of their environment. At the end their files are laid together at ``path``; an engine that goes on behind the
    block is not recorded any more. ``path`` is None afterwards where nothing was recorded."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path
        self._wanted = path
        self._child: Child | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        if self._child is not None or VARIABLE in os.environ:
            raise UsageError("this program is recorded already, by cbprof record or another cbprof.attach")
        if not self._wanted.absolute().parent.is_dir():
            folder = self._wanted.parent
            raise UsageError(f"{self._wanted}: there is no folder {folder}; create it, or write elsewhere")
        self._folder = tempfile.TemporaryDirectory(prefix="cbprof-", ignore_cleanup_errors=True)
        settings = Settings(out=str(self._wanted.absolute()), folder=self._folder.name)
        added = environment_for(settings)
        self._before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        self._child = Child(settings)
        self._child.begin(by_signal=False)
        return self

    def __exit__(self, *error: object) -> None:
        child, folder = self._child, self._folder
        self._child = self._folder = None
        assert child is not None
        assert folder is not None
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        child.end(complete=error[0] is None)
        with folder:
            deadline_s = time.monotonic() + PATIENCE_S
            while any(each.recording and _is_alive(each.pid) for each in read_all(Path(folder.name))):
                if time.monotonic() > deadline_s:
                    break
                time.sleep(0.05)
            processes = with_merged_files(read_all(Path(folder.name)))
        for process in processes:
            for note in process.notes:
                warnings.warn(note, RuntimeWarning, stacklevel=2)
        files = [file for process in processes for file in process.files]
        self.path = Path(files[0]) if files else None
        if not files:
            warnings.warn("vLLM did nothing in this block: make its LLM inside it", RuntimeWarning, stacklevel=2)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return with_context(function, lambda: VllmAttachment(self._wanted))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
