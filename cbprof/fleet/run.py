"""Every file ends as one result: over a fleet by tasks of Dask, for the ranks of a folder by processes of this machine.

Of a fleet, what is known is taken as it is, and the rest becomes tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cbprof.analysis.ranks.report import ExaminedFile, RanksReport, compare_ranks
from cbprof.errors import CbprofError, UsageError
from cbprof.fleet.cluster import cores, safe_path
from cbprof.fleet.dataset import Dataset
from cbprof.fleet.files import TraceFile
from cbprof.fleet.secrets import one_line
from cbprof.fleet.tables import as_parquet, ranks_table
from cbprof.fleet.task import examine

if TYPE_CHECKING:
    from distributed import Client

TRIES_AGAIN = 2
"""Where reading a file fails for a reason that may pass."""

REMEMBER_EVERY_S = 30.0

MOST_UNDER_WAY = 2000
"""Tasks that the scheduler knows of: enough for as many workers, and 20 MB."""

WORTH_A_PROCESS = 8 << 20
"""Bytes in all from which reading takes longer than starting processes for it."""

KILLED = "the process that read it was killed; it may need more memory than there is: record fewer steps"

LOST = "every worker that read it was lost; it may need more memory than one has: raise --memory"

Result = tuple[TraceFile, ExaminedFile]
Done = Callable[[int, int], None]
"""Told how many more files are done, and how many of these were known already."""


def run_local(files: Sequence[TraceFile], examine: Callable[[TraceFile], ExaminedFile]) -> RanksReport:
    """Examine files of this machine, without Dask, and put their ranks side by side.

    ``examine`` is pickled by name: large files are read by other processes, one a core.
    """
    readable = [file for file in files if file.reason is None]
    workers = min(len(readable), cores())
    if workers <= 1 or sum(file.size for file in readable) < WORTH_A_PROCESS:
        found = iter([examine(file) for file in readable])
    else:
        found = iter(_by_processes(readable, examine, workers))
    return compare_ranks([next(found) if file.reason is None else _refused(file) for file in files])


def _by_processes(
    files: Sequence[TraceFile], examine: Callable[[TraceFile], ExaminedFile], workers: int
) -> list[ExaminedFile]:
    """Where a process is killed, such as for its memory, its files and those of its neighbours are read once more, each
    alone in a process of its own: the one that ends it again is the one to blame."""
    # Spawned, not forked: the parent may hold threads, and a child needs nothing of it.
    context = get_context("spawn")
    found: list[ExaminedFile] = []
    with safe_path():
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            tasks = [pool.submit(examine, file) for file in files]
        for file, task in zip(files, tasks, strict=True):
            try:
                found.append(task.result())
            except BrokenProcessPool:
                with ProcessPoolExecutor(1, mp_context=context) as alone:
                    try:
                        found.append(alone.submit(examine, file).result())
                    except BrokenProcessPool:
                        found.append(ExaminedFile(file.name, file.size, reason=KILLED))
    return found


def _refused(file: TraceFile) -> ExaminedFile:
    return ExaminedFile(file.name, file.size, reason=file.reason)


def run_fleet(
    files: Sequence[TraceFile],
    cluster: Callable[[int], AbstractContextManager[Client]],
    *,
    out: str | None = None,
    done: Done = lambda n, n_known: None,
) -> RanksReport:
    """Examine all files and put their ranks side by side. ``cluster`` is asked for, with the number of files that
    are to be read, only if there are any.

    ``out``: where to keep the tables, and to look for what an earlier run has done. Raises :class:`UsageError` where
    that is not a place that all workers see. Anything that goes wrong with one file is the ``reason`` of its result.
    """
    dataset = Dataset.begin(out) if out is not None else None
    results = {file.url: (file, known) for file, known in dataset.known(files)} if dataset else {}
    if results:
        done(len(results), len(results))
    results |= {file.url: (file, _refused(file)) for file in files if file.reason is not None}
    missing = [file for file in files if file.url not in results]
    if missing:
        with cluster(len(missing)) as client:
            for result in _remembered(examine_all(client, missing, dataset), dataset):
                results[result[0].url] = result
                done(1, 0)
    seen = [results[file.url] for file in files]
    report = compare_ranks([examined for _, examined in seen])
    if dataset is not None:
        dataset.finish(seen, as_parquet(ranks_table(report)))
    return report


def examine_all(client: Client, files: Sequence[TraceFile], dataset: Dataset | None) -> Iterator[Result]:
    """The results as they come. The files of a worker that is lost go to another. Those that lost several are read once
    more at the end, each beside nothing else: Dask blames the neighbours of a file as well.

    Some thousand tasks are on their way at any time, so that what the scheduler holds does not grow with the fleet.
    Raises :class:`CbprofError` where the scheduler is lost.
    """
    from distributed import KilledWorker, as_completed

    run, waiting = uuid4().hex, iter(enumerate(files))
    suspects: list[TraceFile] = []
    under_way: dict[str, Any] = {}

    def submit(n: int) -> list[Any]:
        numbers, some = [], []
        for number, file in islice(waiting, n):
            numbers.append(number)
            some.append(file)
        keys = [f"{run}-{number}" for number in numbers]
        futures: list[Any] = client.map(examine, some, [dataset] * len(some), key=keys, retries=TRIES_AGAIN)
        under_way.update(zip(keys, futures, strict=True))
        return futures

    as_they_come = partial(as_completed, loop=client.loop, with_results=True, raise_errors=False)
    coming = as_they_come(submit(MOST_UNDER_WAY))
    try:
        for future, result in coming:
            del under_way[future.key]
            file = files[int(future.key.rpartition("-")[2])]
            if future.status == "error" and isinstance(result[1], KilledWorker):
                suspects.append(file)
            else:
                yield file, _outcome(file, future, result)
            if len(under_way) <= MOST_UNDER_WAY // 2:
                coming.update(submit(MOST_UNDER_WAY // 2))
    except BaseException:
        client.cancel(list(under_way.values()))
        raise
    for file in suspects:
        alone = client.submit(examine, file, dataset, pure=False, retries=TRIES_AGAIN)
        for future, result in as_they_come([alone]):
            yield file, _outcome(file, future, result)


def _outcome(file: TraceFile, future: Any, result: Any) -> ExaminedFile:
    if future.status not in {"finished", "error"}:
        raise CbprofError("the connection to the Dask scheduler was lost; with the same --out a run goes on")
    return _failed(file, result[1]) if future.status == "error" else result


def _failed(file: TraceFile, error: Exception) -> ExaminedFile:
    """Whatever goes wrong with one file is not the end of the others, but for what is wrong with the request itself."""
    from distributed import KilledWorker

    if isinstance(error, UsageError):
        raise error
    if isinstance(error, KilledWorker):
        reason = LOST
    elif isinstance(error, MemoryError):
        reason = "needs more memory than a worker has: raise --memory, or record fewer steps"
    else:
        reason = one_line(error, file.url).removeprefix(f"{file.name}: ")
    return ExaminedFile(file.name, file.size, reason=reason)


def _remembered(results: Iterator[Result], dataset: Dataset | None) -> Iterator[Result]:
    """The same results; every now and then the dataset notes what is done, for a run that is killed."""
    new: list[Result] = []
    n_parts, since = 0, monotonic()
    for result in results:
        yield result
        new.append(result)
        if dataset is not None and monotonic() - since > REMEMBER_EVERY_S:
            dataset.remember(new, str(n_parts))
            new, n_parts, since = [], n_parts + 1, monotonic()
