"""Reads rocpd: the SQLite databases of rocprofv3 and of ROCm's system profiler.

Tables and columns are those of the `schema of rocprofiler-sdk
<https://github.com/ROCm/rocm-systems/tree/develop/projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd>`_. Each
table's name ends in the id of a recording (``rocpd_region_0000c5``), of which a merged file has several, and views
without it show all of them. The tables are read, not the views, whose queries differ between versions and leave out
rows that lack anything. Two generations are known: ``start`` and ``end`` stand in the row, or are ids of
``rocpd_timestamp``; process, thread, agent and queue stand in the row, or in the ``rocpd_track`` that it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cbprof.errors import DataError
from cbprof.formats.bytes.foreign import SQLITE_MAGIC
from cbprof.formats.records.database import Database
from cbprof.formats.records.identity import PROCESS_SHIFT
from cbprof.formats.records.rows import ABSENT
from cbprof.formats.rocm.activity import ID_BITS, MARK, UNNAMED, Activity
from cbprof.formats.rocm.agents import Agent
from cbprof.trace import Int32, Int64, Trace

BEGINNING = "rocpd_string"
"""A table whose name begins so is in every rocpd database."""

_AGAIN = "record it again with `rocprofv3 --runtime-trace -- COMMAND`"
_WHERE = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
_MARKER = "MARKER"


def is_rocpd(head: bytes) -> bool:
    """Whether the first pages of a database hold the schema of rocpd."""
    return head.startswith(SQLITE_MAGIC) and BEGINNING.encode() in head


def load(path: Path) -> Trace:
    """The trace that a database holds.

    What else its ``meta`` says: ``rocpd`` (its schema) and ``device_models`` (names, by number).
    Raises :class:`DataError`, in one line, where the file is damaged or holds tables of another schema.
    """
    activity = Activity()
    with Database(path, again=_AGAIN) as database:
        schemas = [
            _Recording(database, suffix, number, activity).read() for number, suffix in enumerate(_suffixes(database))
        ]
    return activity.trace("rocpd", {"rocpd": {"schema": ", ".join(sorted(set(schemas)))}})


def _suffixes(database: Database) -> list[str]:
    """What ends the names of the tables of each recording."""
    if "rocpd_op" in database.tables:
        raise DataError(f"{database.path}: a database of rocmProfileData (rpd), which is not read; {_AGAIN}")
    found = sorted(name.removeprefix(BEGINNING) for name in database.tables if name.startswith(BEGINNING))
    if not any(f"rocpd_kernel_dispatch{suffix}" in database.tables for suffix in found):
        raise DataError(f"{database.path}: a rocpd database without a table rocpd_kernel_dispatch; {_AGAIN}")
    return found


class _Recording:
    """The tables of one recording. Their ids of agents, processes and strings mean something only among them."""

    def __init__(self, database: Database, suffix: str, number: int, into: Activity) -> None:
        self._database = database
        self._suffix = suffix
        self._number = number
        self._into = into
        self._event = self._columns("event", "id", "category_id", "stack_id", "parent_stack_id", "correlation_id")
        # Programs may choose the correlation ids of rocprofv3 themselves: they count only where nothing else does.
        self._call = "stack_id" if (self._event["stack_id"] > 0).any() else "correlation_id"
        self._track = self._columns("track", "id", *_WHERE)
        self._time = self._columns("timestamp", "id", "value")
        self._process = self._columns("info_process", "id", "pid")
        self._thread = self._columns("info_thread", "id", "tid")

    def read(self) -> str:
        """Take the records; returns their schema."""
        self._into.agents.update(self._agents())
        self._into.thread_names.update(self._thread_names())
        launches = self._read_calls()
        self._read_kernels(launches)
        self._read_copies(launches)
        facts = dict(self._database.pairs(self._table("metadata"), "tag", "value"))
        return str(facts.get("schema_version", ""))[:20]

    def _read_calls(self) -> Int64:
        """Take the regions of the host: calls and ranges of ROCTx; returns the ids of the calls."""
        rows = self._rows("region", "name_id")
        names = self._database.strings(np.unique(rows["name_id"]).tolist(), self._table("string"), "string")
        marks = [number for number, text in names.items() if text.startswith(MARK)]
        rows = {column: values[~np.isin(rows["name_id"], marks)] for column, values in rows.items()}
        event = rows["event_id"]
        category = looked_up(event, self._event["id"], self._event["category_id"])
        is_range = np.isin(category, self._marker_categories())
        name_id = self._named(rows["name_id"], "string", "string")
        messages = self._messages(event[is_range])
        own = (self._into.names.code(messages[each]) if each in messages else -1 for each in event[is_range].tolist())
        spelled = np.fromiter(own, dtype=np.int32, count=int(is_range.sum()))
        name_id[is_range] = np.where(spelled >= 0, spelled, name_id[is_range])
        call = self._stack(event, self._call)
        self._into.add_calls(
            start=rows["start"],
            end=rows["end"],
            name_id=name_id,
            process=self._processes(rows),
            correlation=call,
            thread=looked_up(rows["tid"], self._thread["id"], self._thread["tid"], otherwise=rows["tid"]),
            is_range=is_range,
        )
        return np.unique(call[~is_range])

    def _read_kernels(self, launches: Int64) -> None:
        rows = self._rows("kernel_dispatch", "kernel_id")
        self._into.add_kernels(
            start=rows["start"],
            end=rows["end"],
            name_id=self._named(rows["kernel_id"], "info_kernel_symbol", "display_name", "kernel_name"),
            process=self._processes(rows),
            correlation=self._launched_by(rows["event_id"], launches),
            agent=self._keys(rows["agent_id"]),
            stream=_stream(rows),
        )

    def _read_copies(self, launches: Int64) -> None:
        rows = self._rows("memory_copy", "name_id", "src_agent_id", "dst_agent_id")
        self._into.add_copies(
            start=rows["start"],
            end=rows["end"],
            name_id=self._named(rows["name_id"], "string", "string"),
            process=self._processes(rows),
            correlation=self._launched_by(rows["event_id"], launches),
            source=self._keys(rows["src_agent_id"]),
            target=self._keys(rows["dst_agent_id"]),
            stream=_stream(rows),
        )

    def _rows(self, table: str, *more: str) -> dict[str, Int64]:
        """The rows of a table, in the columns of either generation; none where there is no such table."""
        columns = self._database.tables.get(self._table(table), frozenset())
        rows = self._columns(table, "start", "end", "start_id", "end_id", "track_id", "event_id", *_WHERE, *more)
        for edge in ("start", "end"):
            if edge not in columns:
                rows[edge] = looked_up(rows[f"{edge}_id"], self._time["id"], self._time["value"])
        if "track_id" in columns:
            for column in _WHERE:
                told = looked_up(rows["track_id"], self._track["id"], self._track[column])
                rows[column] = np.where(rows[column] == ABSENT, told, rows[column])
        return rows

    def _launched_by(self, event: Int64, launches: Int64) -> Int64:
        """The call that launched each record: its own, or where that was not recorded, the call around it."""
        own, around = self._stack(event, self._call), self._stack(event, "parent_stack_id")
        return np.where(~np.isin(own, launches) & np.isin(around, launches), around, own)

    def _stack(self, event: Int64, column: str) -> Int64:
        """The id of the call that each event is, or that it stands under; 0 is none."""
        found = looked_up(event, self._event["id"], self._event[column])
        return np.where(found == 0, ABSENT, found)

    def _processes(self, rows: dict[str, Int64]) -> Int64:
        """The process of each row, below the bits of its machine."""
        process = looked_up(rows["pid"], self._process["id"], self._process["pid"], otherwise=rows["pid"])
        machine = np.where(rows["nid"] == ABSENT, 0, rows["nid"] & 0xFFFF)
        return np.where(process == ABSENT, ABSENT, machine << PROCESS_SHIFT | (process & ID_BITS))

    def _agents(self) -> Iterator[tuple[int, Agent]]:
        columns = self._columns("info_agent", "id", "nid", "absolute_index", "type_index")
        nodes = self._columns("info_node", "id", "hash")
        machine = looked_up(columns["nid"], nodes["id"], nodes["hash"], otherwise=columns["nid"])
        table, ids = self._table("info_agent"), columns["id"]
        told = {name: self._database.strings(ids.tolist(), table, name) for name in ("type", "product_name", "name")}
        place = np.where(columns["absolute_index"] == ABSENT, ids, columns["absolute_index"])
        number = np.where(columns["type_index"] < 0, place, columns["type_index"])
        for row, (agent, key) in enumerate(zip(ids.tolist(), self._keys(ids).tolist(), strict=True)):
            yield (
                key,
                Agent(
                    is_gpu=key != ABSENT and told["type"].get(agent) == "GPU",
                    number=int(number[row]) & 0xFFFF,
                    place=(int(machine[row]), int(place[row])),
                    model=told["product_name"].get(agent) or told["name"].get(agent, ""),
                ),
            )

    def _keys(self, agents: Int64) -> Int64:
        """Keys of agents that no other recording has."""
        return np.where((agents < 0) | (agents > ID_BITS), ABSENT, self._number << PROCESS_SHIFT | agents)

    def _thread_names(self) -> Iterator[tuple[int, str]]:
        columns = self._columns("info_thread", "id", "nid", "pid", "tid")
        names = self._database.strings(columns["id"].tolist(), self._table("info_thread"), "name")
        threads = self._processes(columns) << PROCESS_SHIFT | (columns["tid"] & ID_BITS)
        for number, thread in zip(columns["id"].tolist(), threads.tolist(), strict=True):
            if names.get(number):
                yield thread, names[number]

    def _marker_categories(self) -> list[int]:
        """The ids of the categories of ROCTx, in either generation's table."""
        kinds = np.unique(self._event["category_id"])
        ids = kinds[kinds != ABSENT].tolist()
        of_table = self._database.strings(ids, self._table("info_category"), "name")
        texts = of_table or self._database.strings(ids, self._table("string"), "string")
        return [number for number, text in texts.items() if _MARKER in text.upper()]

    def _messages(self, events: Int64) -> dict[int, str]:
        """What programs wrote into their markers, by event."""
        ids = np.unique(events[events != ABSENT]).tolist()
        told = self._database.strings(ids, self._table("event"), "extdata")
        messages = {number: _message(text) for number, text in told.items()}
        return {number: text for number, text in messages.items() if text}

    def _named(self, ids: Int64, table: str, *columns: str) -> Int32:
        """The names that ids of a table stand for, by the first of these columns that has one."""
        distinct, which = np.unique(ids, return_inverse=True)
        wanted = [each for each in distinct.tolist() if each != ABSENT]
        texts: dict[int, str] = {}
        for column in reversed(columns):
            told = self._database.strings(wanted, self._table(table), column)
            texts |= {number: text for number, text in told.items() if text}
        return self._into.names.codes(texts.get(each, UNNAMED) for each in distinct.tolist())[which]

    def _columns(self, table: str, *columns: str) -> dict[str, Int64]:
        return self._database.integers(self._table(table), columns)

    def _table(self, name: str) -> str:
        return f"rocpd_{name}{self._suffix}"


def _stream(rows: dict[str, Int64]) -> Int64:
    """The stream of each row; where a call belongs to none, its queue."""
    return np.where(rows["stream_id"] == ABSENT, rows["queue_id"], rows["stream_id"])


def _message(extdata: str) -> str:
    """What a program wrote into a marker."""
    try:
        told = json.loads(extdata)
    except (ValueError, RecursionError):
        return ""
    message = told.get("message") if isinstance(told, dict) else None
    return message if isinstance(message, str) else ""


def looked_up(ids: Int64, known: Int64, values: Int64, otherwise: Int64 | int = ABSENT) -> Int64:
    """The value of each id in a table of two columns; ``otherwise`` where the id is not in it."""
    if not len(known):
        return np.full_like(ids, ABSENT) if isinstance(otherwise, int) else otherwise
    order = np.argsort(known, kind="stable")
    place = order[np.searchsorted(known, ids, sorter=order).clip(max=len(known) - 1)]
    return np.where(known[place] == ids, values[place], otherwise)
