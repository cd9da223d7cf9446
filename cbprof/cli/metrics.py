"""``--metrics PORT``: the figures of a recording under way, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cbprof.cli.writing import say

MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        metavar="PORT",
        help="Tell Prometheus how it goes, at 127.0.0.1:PORT/metrics; 0: a port that is free.",
    ),
]

Told = dict[str, tuple[Mapping[str, str], Callable[[], Mapping[str, Any]]]]
"""By any key: the labels of a run or a process, and what gives its figures so far."""


@contextmanager
def endpoint(port: int | None, told: Told, *, quiet: bool) -> Iterator[None]:
    """Serve while the body runs, where a port was given, what is put into ``told``.

    Raises :class:`UsageError` where the port is not to be had.
    """
    if port is None:
        yield
        return
    from cbprof.record.metrics import MetricsServer, serving

    with serving(
        MetricsServer(port, lambda: [(labels, figures()) for labels, figures in list(told.values())])
    ) as server:
        if not quiet or not port:
            say(f"cbprof: metrics at {server.url}", err=True)
        yield
