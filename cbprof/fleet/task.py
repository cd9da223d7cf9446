"""What is done with one file: read it, and keep a few kilobytes a rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cbprof.analysis.ranks.rank import Rank, ranks_of
from cbprof.analysis.ranks.report import ExaminedFile
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import CbprofError
from cbprof.fleet.content import on_disk
from cbprof.fleet.dataset import Dataset
from cbprof.fleet.files import TraceFile
from cbprof.formats import load
from cbprof.trace import Trace

NOTHING_RAN = "no work of a device is recorded in it"
TOO_LARGE = "its figures take more memory than there is; record fewer steps"


def examine(file: TraceFile, dataset: Dataset | None) -> ExaminedFile:
    """The ranks in a file, or the reason why there are none. What ``dataset`` has of the same content is not redone.

    Raises OSError where the file cannot be read just now, and UsageError where this machine does not see the dataset.
    """
    if dataset is not None:
        dataset.check_visible()
    with on_disk(file) as content:
        if dataset is not None and (known := dataset.read(file, content.fingerprint)) is not None:
            return known
        examined, summary = _examine(
            content.path, file, lambda path: load(path, alone=True, cached=False), summarize, content.fingerprint
        )
    if dataset is not None:
        dataset.write(examined, summary)
    return examined


def examine_local(file: TraceFile, summarize: Callable[[Trace], Summary], *, cached: bool) -> ExaminedFile:
    """The ranks in a file of this machine, or the reason why there are none. ``cached``: as :func:`load` has it."""
    try:
        examined, _ = _examine(Path(file.name), file, lambda path: load(path, cached=cached), summarize)
    except MemoryError:
        return ExaminedFile(file.name, file.size, reason=TOO_LARGE)
    return examined


def _examine(
    path: Path,
    file: TraceFile,
    read: Callable[[Path], Trace],
    summarize: Callable[[Trace], Summary],
    fingerprint: str | None = None,
) -> tuple[ExaminedFile, Summary | None]:
    summary: Summary | None = None
    ranks: tuple[Rank, ...] = ()
    try:
        trace = read(path)
        summary = summarize(trace)
        ranks = ranks_of(trace, summary)
        reason = None if ranks else NOTHING_RAN
    except CbprofError as error:
        reason = str(error).removeprefix(f"{path}: ").replace(str(path), "FILE")
    return ExaminedFile(file.name, file.size, ranks, reason, fingerprint), summary
