"""Reads Nsight Systems: its SQLite exports, schema 2.9 to 3.x."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cbprof.errors import DataError
from cbprof.formats.columns import Index, assemble
from cbprof.formats.nsys.identity import number_gpus, place_graphs, ranks, thread_names
from cbprof.formats.nsys.rows import ACTIVITY, RANGES, device_rows, host_rows, range_rows
from cbprof.formats.records.database import Database
from cbprof.formats.records.identity import Lanes, blocks, extent, name_processes
from cbprof.formats.records.rows import Findings, Rows
from cbprof.meta import Meta
from cbprof.trace import Trace

OLDEST, NEWEST = (2, 9), 3
"""The lowest schema (major, minor) that is known to be read right, and the highest major."""

_META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_LOSS = re.compile(r"not all|dropped|\blost\b|overflow|incomplete", re.IGNORECASE)
_OF_THE_GPU = re.compile(r"cuda|cupti|gpu|kernel|nvtx", re.IGNORECASE)
_MOST_MESSAGES = 3


def load(path: Path) -> Trace:
    """The trace that an export holds.

    What else its ``meta`` says: ``nsys`` (schema and product) and ``device_models`` (names, by number).
    Raises :class:`DataError`, in one line, where the file is not an export, damaged, or of a newer schema.
    """
    with Database(path, again="export it again with `nsys export`") as database:
        names, found = Index[str](), Findings()
        product = _product(database, found)
        on_device = list(device_rows(database, names, found))
        on_host = [*host_rows(database, names, found), *range_rows(database, names, found)]
        named = name_processes([*on_device, *on_host], found)
        on_device, on_host = named[: len(on_device)], named[len(on_device) :]
        on_device = number_gpus(database, place_graphs(on_device, found), found)
        rows = [*on_device, *on_host]
        lanes = Lanes(rows, ranks(database), thread_names(database))
        spans = blocks(rows, lanes)
        _note_diagnostics(database, found)
        _note_missing(database, found)
        models = _device_models(database, on_device)
        of_lanes = {lane.rank for lane in lanes.index.things()}
        meta = Meta(
            evidence="cupti",
            format="nsys",
            device=", ".join(dict.fromkeys(models.values())) or None,
            rank=min(of_lanes) if len(of_lanes) == 1 and min(of_lanes) >= 0 else None,
            base_time_ns=_origin(database),
            reliable=found.reliable,
            warnings=tuple(found.warnings),
            health=found.counts,
            extent_ns=extent(rows),
            extra={"nsys": product} | ({"device_models": models} if models else {}),
        )
    return assemble(spans, names.things(), lanes.index.things(), meta)


def _product(database: Database, found: Findings) -> dict[str, str]:
    """Which tool wrote the export, in which schema. Raises DataError where it was not Nsight Systems."""
    facts: dict[str, str] = {}
    for table in _META_TABLES:
        facts |= {str(name): str(value) for name, value in database.pairs(table, "name", "value")}
    ours = {table for table in database.tables if table == RANGES or table.startswith(ACTIVITY)}
    if "StringTable" in database.tables:
        raise DataError(f"{database.path}: a database of nvprof, which is not read; record with Nsight Systems instead")
    if not ours and not any(name.startswith("EXPORT_") for name in facts):
        raise DataError(
            f"{database.path}: an SQLite database, but no export of Nsight Systems: it has no table {ACTIVITY}KERNEL"
        )
    schema = facts.get("EXPORT_SCHEMA_VERSION", "")
    if _version(schema) >= (NEWEST + 1, 0):
        oldest = ".".join(str(part) for part in OLDEST)
        raise DataError(f"{database.path}: its schema is {schema[:20]}, this version reads {oldest} to {NEWEST}.x")
    if _version(schema) < OLDEST:
        found.warnings.append(f"the export's schema {schema[:20]} is older than what is known to be read right")
    wanted = {"schema": "EXPORT_SCHEMA_VERSION", "product": "EXPORT_PRODUCT_VERSION"}
    return {key: facts[name] for key, name in wanted.items() if name in facts}


def _version(schema: str) -> tuple[int, int]:
    """Major and minor number of a schema; one that is not stated counts as a known one."""
    number = re.match(r"(\d{1,9})\.(\d{1,9})", schema)
    return (int(number[1]), int(number[2])) if number else OLDEST


def _origin(database: Database) -> int | None:
    """Time 0 of the file in nanoseconds since 1970, by which files of several ranks are compared; None if unknown."""
    times = database.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    return int(times[0]) if len(times) and times[0] >= 0 else None


def _device_models(database: Database, rows: Sequence[Rows]) -> dict[str, str]:
    """The models of the GPUs that worked, by their numbers."""
    listed = {key: str(name) for key, name in database.pairs("TARGET_INFO_GPU", "id", "name") if name}
    worked = sorted({device for each in rows for device in np.unique(each.device).tolist()})
    return {str(device): listed[device] for device in worked if device in listed}


def _note_diagnostics(database: Database, found: Findings) -> None:
    """Repeat what Nsight Systems itself says was lost while it recorded."""
    messages = (" ".join(str(text).split()) for _, text in database.pairs("DIAGNOSTIC_EVENT", "severity", "text"))
    losses = [text for text in dict.fromkeys(messages) if _LOSS.search(text) and _OF_THE_GPU.search(text)]
    for text in losses[:_MOST_MESSAGES]:
        found.doubt(f"Nsight Systems warns: {text[:160]}")
    if losses:
        found.count("n_profiler_losses", len(losses))


def _note_missing(database: Database, found: Findings) -> None:
    """Warn of tables that the figures need and the export lacks, and say how to record them."""
    tables = database.tables
    if not any(f"{ACTIVITY}{kind}" in tables for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")):
        found.warnings.append("the export holds no work of a GPU; record with `nsys profile --trace=cuda,nvtx`")
    elif f"{ACTIVITY}RUNTIME" not in tables:
        found.warnings.append("the export holds no CUDA calls: what launched the GPU's work is unknown")
