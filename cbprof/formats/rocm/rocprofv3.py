"""Reads the JSON of rocprofv3 (``--output-format json``): the records of each process, with their names in tables.

Its fields are those of the `user guide of rocprofv3
<https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html>`_. Handles of agents and
queues take all 64 bits: they are numbered here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from cbprof.errors import DataError
from cbprof.formats.bytes.content import read_content
from cbprof.formats.columns import Index
from cbprof.formats.records.rows import ABSENT
from cbprof.formats.rocm.activity import ID_BITS, MARK, UNNAMED, Activity
from cbprof.formats.rocm.agents import Agent
from cbprof.trace import Int64, Trace

_GPU = 2  # type of an agent
_MOST = (1 << 63) - 1

# Real objects take 50 bytes and more on average, and real texts, keys included, 15. An empty object takes 3 bytes, and
# 50 times as much in memory; a short text takes 5, and 15 times as much.
_BYTES_AN_OBJECT = 32
_BYTES_A_TEXT = 10
_AT_LEAST = 1 << 16

_AGAIN = "record it again with `rocprofv3 --runtime-trace --output-format json -- COMMAND`"


class _Correlation(msgspec.Struct, frozen=True, gc=False):
    internal: int = 0


class _Record(msgspec.Struct, frozen=True, gc=False):
    """What all records share. A time that is missing is 0 and 0, as where none could be collected."""

    start_timestamp: int = 0
    end_timestamp: int = 0
    kind: int = -1
    operation: int = -1
    thread_id: int = ABSENT
    correlation_id: _Correlation | None = None


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int = -1


class _Dispatch(msgspec.Struct, frozen=True, gc=False):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = -1


class _Kernel(_Record, frozen=True, gc=False):
    dispatch_info: _Dispatch = _Dispatch()
    stream_id: _Handle | None = None


class _Copy(_Record, frozen=True, gc=False):
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    stream_id: _Handle | None = None


class _Records(msgspec.Struct, frozen=True):
    kernel_dispatch: list[_Kernel] = []
    memory_copy: list[_Copy] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Operations(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: list[str] = []


class _Text(msgspec.Struct, frozen=True):
    key: int
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Operations] = []
    marker_api: list[_Text] = []


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int = -1
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle = _Handle()
    type: int = 0
    node_id: int = 0
    logical_node_type_id: int = -1
    product_name: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    pid: int = ABSENT


class _Process(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = _Records()


class _File(msgspec.Struct, frozen=True):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


_DECODER = msgspec.json.Decoder(_File)


def load(path: Path) -> Trace:
    """The trace that a file holds. Raises :class:`DataError`, in one line, where it is cut, damaged or no such file."""
    content = read_content(path)
    if _parts_are_too_small(content.data):
        raise DataError(f"{path}: its records are smaller than any that rocprofv3 writes; {_AGAIN}")
    try:
        file = _DECODER.decode(content.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100] if content.whole else "the gzip stream ends too early"
        raise DataError(f"{path}: JSON of rocprofv3 that is cut or damaged ({reason}); {_AGAIN}") from None
    activity = Activity()
    for number, process in enumerate(file.processes):
        _Reader(process, number, activity).read()
    return activity.trace("rocprofv3", {})


def _parts_are_too_small(data: bytes) -> bool:
    """Whether it is made to fill the memory: of more objects or texts than a file of its size ever holds."""
    objects, texts = data.count(b"{"), data.count(b'"') // 2
    return objects > _AT_LEAST + len(data) // _BYTES_AN_OBJECT or texts > _AT_LEAST + len(data) // _BYTES_A_TEXT


class _Reader:
    """Takes the records of one process. The handles of its agents and queues mean something only in it."""

    def __init__(self, process: _Process, number: int, into: Activity) -> None:
        self._process = process
        self._number = number
        self._into = into
        self._queues = Index[int]()
        self._kinds = process.strings.buffer_records

    def read(self) -> None:
        """Take the records."""
        self._into.agents.update((self._key(agent.id), _as_agent(agent)) for agent in self._process.agents)
        records = self._process.buffer_records
        ranges = [each for each in records.marker_api if not self._operation(each).startswith(MARK)]
        self._read_calls([*records.hip_api, *records.hsa_api, *records.rccl_api], ranges)
        self._read_kernels(records.kernel_dispatch)
        self._read_copies(records.memory_copy)

    def _read_calls(self, calls: list[_Record], ranges: list[_Record]) -> None:
        texts = {text.key: text.value for text in self._process.strings.marker_api if text.value}
        told = (texts.get(_call_of(each)) or self._operation(each) for each in ranges)
        both = [*calls, *ranges]
        self._into.add_calls(
            start=_column(each.start_timestamp for each in both),
            end=_column(each.end_timestamp for each in both),
            name_id=self._into.names.codes([*(self._operation(each) for each in calls), *told]),
            process=self._processes(both),
            correlation=_column(_call_of(each) for each in both),
            thread=_column(each.thread_id for each in both),
            is_range=np.arange(len(both)) >= len(calls),
        )

    def _read_kernels(self, kernels: list[_Kernel]) -> None:
        symbols = {
            each.kernel_id: each.formatted_kernel_name or each.kernel_name for each in self._process.kernel_symbols
        }
        dispatches = [each.dispatch_info for each in kernels]
        self._into.add_kernels(
            start=_column(each.start_timestamp for each in kernels),
            end=_column(each.end_timestamp for each in kernels),
            name_id=self._into.names.codes(symbols.get(each.kernel_id) or UNNAMED for each in dispatches),
            process=self._processes(kernels),
            correlation=_column(_call_of(each) for each in kernels),
            agent=_column(self._key(each.agent_id) for each in dispatches),
            stream=_column(
                self._queues.code(dispatch.queue_id.handle) if kernel.stream_id is None else kernel.stream_id.handle
                for kernel, dispatch in zip(kernels, dispatches, strict=True)
            ),
        )

    def _read_copies(self, copies: list[_Copy]) -> None:
        self._into.add_copies(
            start=_column(each.start_timestamp for each in copies),
            end=_column(each.end_timestamp for each in copies),
            name_id=self._into.names.codes(self._operation(each) for each in copies),
            process=self._processes(copies),
            correlation=_column(_call_of(each) for each in copies),
            source=_column(self._key(each.src_agent_id) for each in copies),
            target=_column(self._key(each.dst_agent_id) for each in copies),
            stream=_column(ABSENT if each.stream_id is None else each.stream_id.handle for each in copies),
        )

    def _operation(self, record: _Record) -> str:
        """What a record did, by the table of its kind."""
        if not 0 <= record.kind < len(self._kinds):
            return UNNAMED
        operations = self._kinds[record.kind].operations
        return operations[record.operation] if 0 <= record.operation < len(operations) else UNNAMED

    def _processes(self, records: Sequence[_Record]) -> Int64:
        pid = self._process.metadata.pid
        return np.full(len(records), pid & ID_BITS if pid >= 0 else self._number, dtype=np.int64)

    def _key(self, agent: _Handle) -> int:
        """A key of an agent that no other process has."""
        return self._into.handles.code((self._number, agent.handle))


def _as_agent(agent: _Agent) -> Agent:
    number = agent.node_id if agent.logical_node_type_id < 0 else agent.logical_node_type_id
    return Agent(
        is_gpu=agent.type == _GPU,
        number=number & 0xFFFF,
        place=(0, agent.node_id),
        model=agent.product_name or agent.name,
    )


def _call_of(record: _Record) -> int:
    """The id of the call that a record is, or that launched it; a process counts its calls from 1."""
    call = record.correlation_id.internal if record.correlation_id is not None else 0
    return call or ABSENT


def _column(values: Iterable[int]) -> Int64:
    """Integers as a column; what 64 bits do not hold is absent."""
    listed = list(values)
    try:
        return np.array(listed, dtype=np.int64)
    except OverflowError:
        return np.array([each if -_MOST <= each <= _MOST else ABSENT for each in listed], dtype=np.int64)
