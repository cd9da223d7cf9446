"""The rows of Huawei's Ascend NPUs, in ``trace_view.json`` of torch_npu and ``msprof_*.json`` of CANN.

::

    Python             Thread 1                 operators, by category
    CANN               Thread 1                 the host: AscendCL@aclrtLaunchKernel, Node@launch, Runtime@...
    Ascend Hardware    Stream 2                 work of a device, and tasks that wait for or set an event
    Communication      Group 0 Communication    collectives: hcom_allReduce__123_0_1 (HCCL, in older files)
                       Plane 0                  their parts
    Overlap Analysis   Computing, Free, ..      what the exporter makes of the rows above

Arrows named ``HostToDevice`` lead from ``Node@launch`` to the task. No event says on which NPU it ran: the labels of
its process do (``NPU 0``), else NPUs are numbered in the order of their process ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cbprof.formats.cuda_names import is_wait
from cbprof.formats.kineto.scalars import Scalar, Where

_HARDWARE = "Ascend Hardware"
_COLLECTIVES = frozenset({"Communication", "HCCL"})
_OF_NPUS = {_HARDWARE, "Overlap Analysis", *_COLLECTIVES}
_PYTHON, _CALLS = "Python", "CANN"
_GROUP = re.compile(r"(Group \S+ )?Communication")
_STREAM = re.compile(r"Stream (\d{1,18})")
_NPU = re.compile(r"NPU (\d{1,9})\b")
_NO_WORK = re.compile(r"(event|notify|capture)_?(wait|record|reset)\w*|place_?holder\w*|write_?value\w*", re.IGNORECASE)
_CALL = re.compile(r"(AscendCL|Runtime|Node|Model|HCCL|ACL)@(?P<call>\w+)", re.IGNORECASE)


class Row(NamedTuple):
    """``is_work``: its spans are work of the device; else they describe work that stands on other rows."""

    is_work: bool
    device: int
    stream: Scalar


def rows_of_npus(
    wheres: Sequence[Where], processes: Sequence[str], threads: Sequence[str], labels: Mapping[Scalar, str]
) -> dict[int, Row]:
    """The rows that stand for NPUs, by their places in ``wheres``; none where the file has no Ascend hardware.

    ``processes``, ``threads``: the names of each row. ``labels``: of each process.
    """
    if _HARDWARE not in processes:
        return {}
    pids: dict[str, list[Scalar]] = {}
    for where, process in zip(wheres, processes, strict=True):
        of_kind = pids.setdefault(process, [])
        if where.pid not in of_kind:
            of_kind.append(where.pid)
    found = {}
    for place, (where, process, thread) in enumerate(zip(wheres, processes, threads, strict=True)):
        if process not in _OF_NPUS:
            continue
        told = _NPU.search(labels.get(where.pid, ""))
        device = int(told[1]) if told else sorted(pids[process], key=_in_order).index(where.pid)
        stream = _STREAM.fullmatch(thread)
        is_work = process == _HARDWARE or (process in _COLLECTIVES and _GROUP.fullmatch(thread) is not None)
        found[place] = Row(is_work, device, int(stream[1]) if stream else thread or where.tid)
    return found


def on_their_threads(wheres: Sequence[Where], processes: Sequence[str]) -> Sequence[Where]:
    """The rows with CANN's calls on the Python thread that made them: the file has them as a process of their own."""
    python = {where.pid for where, process in zip(wheres, processes, strict=True) if process == _PYTHON}
    if len(python) != 1:
        return wheres
    (pid,) = python
    threads = {where.tid for where in wheres if where.pid == pid}
    return [
        where._replace(pid=pid) if process == _CALLS and where.tid in threads else where
        for where, process in zip(wheres, processes, strict=True)
    ]


def is_task_without_work(name: str) -> bool:
    """Whether a task only orders others: it waits for an event or a notification, or sets one."""
    return _NO_WORK.fullmatch(name) is not None


def is_waiting_call(name: str) -> bool:
    """Whether a span is a call of CANN that blocks until the NPU is done: ``AscendCL@aclrtSynchronizeStream``."""
    match = _CALL.fullmatch(name)
    return match is not None and (is_wait(match["call"]) or _SYNCHRONISES.fullmatch(match["call"]) is not None)


_SYNCHRONISES = re.compile(r"(Stream|Device|Event|Context)Synchronize\w*|Mem[cC]opySync\w*")  # of the runtime below


def _in_order(pid: Scalar) -> tuple[bool, int, str]:
    return (isinstance(pid, str), pid if isinstance(pid, int) else 0, str(pid))
