"""Where the tasks run: processes of this machine, or a cluster that is there already."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cbprof import __version__
from cbprof.errors import CbprofError, UsageError
from cbprof.fleet.secrets import one_line

if TYPE_CHECKING:
    from distributed import Client

PATIENCE_S = 10
PATIENCE_FOR_WORKERS_S = 60

# A task holds one trace, which cannot be spilled; a worker that outgrows its limit is replaced, and its file redone.
LOCAL = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.profile.enabled": False,  # it samples every task and keeps what it sees
    # Dask sets it, which keeps glibc from learning the sizes that come again: every piece of a file is a new mapping.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,  # one thread does all the work
}


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes that are started inside do not look for modules in the current folder.

    multiprocessing starts them with ``python -c``, which does, and a trace often lies beside files of somebody else.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def local_cluster(n_files: int, *, workers: int | None = None, memory: str | None = None) -> Iterator[Client]:
    """Worker processes of this machine, one a core (no more than files); ``memory`` a worker, such as ``4GB``.

    They end with the block. They speak TLS with a certificate that is made for them, whose key no other process has:
    whoever may talk to a scheduler may run code as the user, and any user of the machine may connect to its ports.

    Raises :class:`UsageError` for a limit that means nothing.
    """
    import dask
    from dask.utils import parse_bytes
    from distributed import Client, LocalCluster
    from distributed.security import Security

    try:
        limit = parse_bytes(memory) if memory else "auto"
    except ValueError:
        raise UsageError(f"{memory!r} is no amount of memory: give --memory as in 4GB") from None
    with (
        safe_path(),
        dask.config.set(LOCAL),
        LocalCluster(
            n_workers=min(n_files, workers or cores()),
            threads_per_worker=1,
            processes=True,
            memory_limit=limit,
            host="127.0.0.1",
            protocol="tls",
            security=Security.temporary(),
            dashboard_address="127.0.0.1:0",  # None would take port 8787, and warn where another has it
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def joined_cluster(address: str, n_files: int) -> Iterator[Client]:
    """A cluster whose scheduler is at ``address``, such as ``tcp://host:8786``, whatever there is to do.

    Raises :class:`CbprofError` where it cannot be reached, has no workers, or they have another cbprof.
    """
    from distributed import Client

    try:
        asyncio.run(_greet(address))
        client = Client(address, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = "no answer" if isinstance(error, OSError) else one_line(error)
        raise CbprofError(f"{address}: cannot reach a Dask scheduler there: {why}; check --scheduler") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE_FOR_WORKERS_S)
        except TimeoutError:
            raise CbprofError(f"{address}: the scheduler has no workers; start some: dask worker {address}") from None
        _check_versions(client, address)
        yield client


async def _greet(address: str) -> None:
    """Raises OSError where nobody at ``address`` answers as a scheduler does, within :data:`PATIENCE_S` for all of it:
    a client would wait for ever for somebody who speaks something else."""
    from distributed.comm import connect
    from distributed.security import Security

    async with asyncio.timeout(PATIENCE_S):
        comm = await connect(address, timeout=PATIENCE_S, **Security().get_connection_args("client"))
        try:
            await comm.write({"op": "identity", "reply": True})
            await comm.read()
        finally:
            comm.abort()


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_versions(client: Client, address: str) -> None:
    try:
        versions = client.run(version)
    except ImportError:
        versions = {"a worker": "no cbprof"}
    for worker, found in versions.items():
        if found != __version__:
            raise CbprofError(f"{address}: {worker} has {found}, this is {__version__}; install the same everywhere")


def version() -> str:
    """Of the cbprof that a worker has."""
    return __version__
