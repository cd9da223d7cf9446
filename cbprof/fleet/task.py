"""What a worker does with one file: read it, and keep a few kilobytes a rank."""

from __future__ import annotations

from cbprof.analysis.ranks.rank import FleetRank, fleet_ranks
from cbprof.analysis.ranks.report import ExaminedFile
from cbprof.analysis.summary import Summary, summarize
from cbprof.errors import CbprofError
from cbprof.fleet.content import LocalContent, on_disk
from cbprof.fleet.dataset import Dataset
from cbprof.fleet.files import TraceFile
from cbprof.formats import load

NOTHING_RAN = "no work of a device is recorded in it"


def examine(file: TraceFile, dataset: Dataset | None) -> ExaminedFile:
    """The ranks in a file, or the reason why there are none. What ``dataset`` has of the same content is not redone.

    Raises OSError where the file cannot be read just now, and UsageError where this machine does not see the dataset.
    """
    if dataset is not None:
        dataset.check_visible()
    with on_disk(file) as content:
        if dataset is not None and (known := dataset.read(file, content.fingerprint)) is not None:
            return known
        return _examine(file, content, dataset)


def _examine(file: TraceFile, content: LocalContent, dataset: Dataset | None) -> ExaminedFile:
    summary: Summary | None = None
    ranks: tuple[FleetRank, ...] = ()
    try:
        trace = load(content.path, alone=True, cached=False)
        summary = summarize(trace)
        ranks = fleet_ranks(trace, summary)
        reason = None if ranks else NOTHING_RAN
    except CbprofError as error:
        reason = str(error).removeprefix(f"{content.path}: ").replace(str(content.path), "FILE")
    examined = ExaminedFile(file.name, file.size, ranks, reason, content.fingerprint)
    if dataset is not None:
        dataset.write(examined, summary)
    return examined
