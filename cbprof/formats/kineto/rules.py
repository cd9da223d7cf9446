"""What the events of torch.profiler mean: which are work of a device, which of the host, and where they ran.

Category names are those of Kineto (``libkineto/include/ActivityType.h``); older versions capitalised them and called
the runtime ``Runtime`` and a CPU operator ``Operator``. The oldest exporter, before Kineto, gave no category at all.
"""

from __future__ import annotations

import re

from cbprof.formats.cuda_names import is_collective, is_wait
from cbprof.formats.kineto.ascend import is_task_without_work, is_waiting_call
from cbprof.formats.kineto.scalars import Scalar, What, Where
from cbprof.trace import NONE, Kind

LEGACY_DEVICE = "CUDA functions"
"""The pid of what ran on a device, in files whose events have no category."""

SPAN_OF_ALL = "trace"
"""The category of the span that stands for the whole recording."""

_KNOWN = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "operator", "python_function", "user_annotation"})
# ``cuda_runtime``, ``cuda_driver``, ``xpu_runtime``, ``privateuse1_runtime``, ``mtia_runtime``, ...
_LAUNCHES = re.compile(r"([a-z0-9]+_)?(runtime|driver)")
_PROFILER_STEP = "ProfilerStep#"

_NAMED = {
    "gpu_memset": Kind.GPU_SET,
    "memset": Kind.GPU_SET,
    "user_annotation": Kind.CPU_ANNOTATION,
    "overhead": Kind.CPU_OVERHEAD,
}
# Ranges and markers that stand on the rows of a device and are not its work.
_NOT_WORK = frozenset({SPAN_OF_ALL, "gpu_user_annotation", "ac2g", "fwdbwd", "async"})
_MARKERS = re.compile(r"([a-z0-9]+_)?(sync|event)")  # ``cuda_sync``, ``xpu_sync``, ``cuda_event``

# Intel calls the host M (memory), H (host) or S (shared).
_TO_DEVICE = re.compile(r"\b(HtoD|HostToDevice|HtoA|[HMS]2D)\b|_h2d", re.IGNORECASE)
_TO_HOST = re.compile(r"\b(DtoH|DeviceToHost|AtoH|D2[HMS])\b|_d2h", re.IGNORECASE)
_STREAM = re.compile(r"\s*(?:stream\s*)?#?(-?\d{1,18})\s*", re.IGNORECASE)
_TAGGED = re.compile(r"(?P<tag>.*\D)-?\d{1,18}\s*")
_RANK = re.compile(r"(?:\b|_)(?:tp|rank)[\s_-]*(\d{1,6})(?!\d)", re.IGNORECASE)
_INTEGER = re.compile(r"\s*-?\d{1,18}\s*")


def kind_of(what: What, where: Where | None) -> Kind | None:
    """The kind of a span; None for markers and ranges that are nobody's work.

    ``where`` matters only without a category.
    """
    cat, name = category(what), what.name
    if not cat and where is not None and where.pid == LEGACY_DEVICE:
        cat = "memcpy" if name.startswith("Memcpy") else "memset" if name.startswith("Memset") else "kernel"
    if cat == "kernel":
        return Kind.GPU_COMM if is_collective(name) else Kind.GPU_COMPUTE
    if cat in {"gpu_memcpy", "memcpy"}:
        return copy_kind(name)
    if is_wait(name) if is_call(what) else not cat and is_waiting_call(name):
        return Kind.CPU_WAIT
    if cat in _NAMED:
        return _NAMED[cat]
    if name.startswith(_PROFILER_STEP):  # older versions wrote it as an operator
        return Kind.CPU_ANNOTATION
    return None if cat in _NOT_WORK or cat.startswith("gpu_") or _MARKERS.fullmatch(cat) else Kind.CPU_WORK


def kind_of_work(name: str) -> Kind | None:
    """The kind of what stands on a stream, where only its name tells: ``MemcpyD2H``, ``fusion_3``; None for no work."""
    if is_task_without_work(name):
        return None
    if name.lower().startswith("memset"):
        return Kind.GPU_SET
    if name.lower().startswith("memcpy"):
        return copy_kind(name[len("memcpy") :])
    return Kind.GPU_COMM if is_collective(name) else Kind.GPU_COMPUTE


def is_known(what: What) -> bool:
    """Whether its category says what it is, wherever it stands."""
    cat = category(what)
    known = cat in _KNOWN or cat in _NAMED or cat in _NOT_WORK or cat == "memcpy" or is_call(what)
    return known or cat.startswith("gpu_") or _MARKERS.fullmatch(cat) is not None


def is_call(what: What) -> bool:
    """Whether it calls a runtime or a driver: such a call shares a correlation id with what it launched."""
    return _LAUNCHES.fullmatch(category(what)) is not None


def is_of_kineto(what: What) -> bool:
    """Whether it is of torch.profiler, by its category."""
    return category(what) in _KNOWN or is_call(what)


def category(what: What) -> str:
    return (what.cat or "").strip().lower()


def copy_kind(name: str) -> Kind:
    if _TO_DEVICE.search(name):
        return Kind.GPU_H2D
    return Kind.GPU_D2H if _TO_HOST.search(name) else Kind.GPU_COPY


def copies_to_pageable(what: What) -> bool:
    """Whether this is a copy from a device to memory that is not page-locked."""
    return _TO_HOST.search(what.name) is not None and "pageable" in what.name.lower()


def device_of(where: Where, tag: str = "") -> int | str:
    """The device of a row: ``args.device`` where that is a number, else the pid, without its ``tag``."""
    device = _number(where.device)
    if device is None:
        device = _number(_untagged(where.pid, tag))
    return device if device is not None else str(where.pid)


def stream_of(where: Where) -> int | str:
    """The stream of a row: ``args.stream``, else the tid; ``"stream 7"`` is stream 7."""
    stream = where.tid if where.stream is None else where.stream
    if isinstance(stream, str) and (match := _STREAM.fullmatch(stream)):
        return int(match[1])
    return stream if isinstance(stream, int) else str(stream)


def tag_of(where: Where) -> str:
    """What a merger of files wrote before the pid: ``[TP01]`` of ``[TP01] 1002``; nothing before a bare number."""
    match = _TAGGED.fullmatch(where.pid) if isinstance(where.pid, str) else None
    return match["tag"].strip() if match else ""


def rank_of(tag: str) -> int:
    """The rank that a tag names: 1 of ``[TP01]``, or of ``rank 1``; -1 where it names none."""
    match = _RANK.search(tag)
    return int(match[1]) if match else NONE


def host_of(where: Where) -> tuple[int | str | None, int | str | None]:
    """The process and the thread of a row of the host."""
    return as_number(where.pid), as_number(where.tid)


def _untagged(pid: Scalar, tag: str) -> Scalar:
    return pid.strip().removeprefix(tag) if isinstance(pid, str) else pid


def as_number(value: Scalar) -> Scalar:
    """``"4100"`` as 4100; anything that is no number as it is."""
    number = _number(value)
    return value if number is None else number


def _number(value: Scalar) -> int | None:
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else None
    return value
