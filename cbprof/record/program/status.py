"""How a recorded process is doing: it writes, ``cbprof record`` reads. A file is replaced whole, never half there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SUFFIX = ".status"  # sitecustomize.py has it too
MUTE = ".mute"
TOGGLES = "toggles"


class Status(NamedTuple):
    """One process, or what it was before it called exec: ``image`` counts the Pythons of one pid, 0 is a fork.

    ``files``: the traces it has finished; ``part``: the one it is writing; ``lost``: what there is of
    those that it could not finish, empty where there is nothing.

    ``engine``: whose loop was recorded, if any was. ``steps``: begun so far, recorded or not. ``tokens`` and ``cells``
    (see :class:`~cbprof.record.live.Activity`): of the recording under way. ``notes``: what its user should know.
    ``role``: what the process is to vLLM; ``vllm``, ``sglang``: it has imported that.
    ``figures``: of its :class:`~cbprof.record.meter.Meter`, where metrics were asked for.
    ``forked_from``: the process that it was forked off from, if it is a fork that is recorded.
    """

    pid: int
    image: int = 0
    python: str = ""
    has_cbprof: bool = True
    recording: bool = False
    signals: int = 0
    torch: bool = False
    cuda: bool = False
    engine: str = ""
    steps: int = 0
    spans: int = 0
    device_spans: bool = False
    tokens: int = 0
    cells: tuple[float, ...] = ()
    files: tuple[str, ...] = ()
    part: str = ""
    lost: tuple[str, ...] = ()
    cupti: tuple[str, ...] = ()
    forks: int = 0
    forked_from: int = 0
    role: str = ""
    vllm: bool = False
    sglang: bool = False
    notes: tuple[str, ...] = ()
    at_s: float = 0.0
    figures: dict[str, Any] = {}  # noqa: RUF012 - of a NamedTuple, which nobody changes

    def write(self, folder: str) -> None:
        """Replace this process's file. A folder that is gone (``cbprof record`` was killed) is no error; on a disk that
        is full an empty file says so."""
        path = os.path.join(folder, f"{self.pid}-{self.image}{SUFFIX}")
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(self._asdict(), file)
            os.replace(path + ".new", path)
        except OSError:
            with suppress(OSError):
                os.close(os.open(path + MUTE, os.O_CREAT))
        else:
            with suppress(OSError):
                os.unlink(path + MUTE)


def read_all(folder: Path) -> list[Status]:
    """The processes that have said something, by pid."""
    found = []
    for path in folder.glob("*" + SUFFIX):
        with suppress(OSError, ValueError):
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            status = Status(**{key: _untouched(value) for key, value in fields.items()})
            if Path(f"{path}{MUTE}").exists():
                note = f"process {status.pid} could not say how its recording went: {folder} takes no more"
                status = status._replace(lost=(*status.lost, status.part), part="", notes=(*status.notes, note))
            found.append(status)
    return sorted(found, key=lambda status: (status.pid, status.image))


def toggle(folder: str) -> None:
    """Switch every process of an engine on or off: those that follow read how often that was done."""
    with suppress(OSError), open(os.path.join(folder, TOGGLES), "ab") as file:
        file.write(b".")


def toggles(folder: str) -> int:
    """How often that was done."""
    try:
        return os.path.getsize(os.path.join(folder, TOGGLES))
    except OSError:
        return 0


def _untouched(value: Any) -> Any:
    """JSON makes lists of tuples."""
    return tuple(value) if isinstance(value, list) else value


def claim(folder: str, name: str) -> int:
    """The number, from 1, of the run's next trace ``name``: no two processes get the same."""
    number = 1
    while True:
        try:
            os.close(os.open(os.path.join(folder, f"{name}.{number}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        except OSError:  # the folder is gone, and nobody reads names; or its disk is full
            return os.getpid()
        else:
            return number
