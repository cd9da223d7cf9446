"""What users of the served model notice: time to the first token, and time between tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from cbprof.analysis.accounting.phases import nearest_rank
from cbprof.analysis.accounting.window import Window
from cbprof.trace import Int64, RequestEvent, RequestTable


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of the requests of a window, in nanoseconds; None is unknown.

    ``n_first``: requests that got their first token in the window, and whose arrival is known. ``ttft_*``: their time
    from arrival to it. ``itl_*``: time between two tokens of a request; its percentiles need a record of every token,
    its mean only first and last tokens and their number.
    """

    n_first: int
    n_finished: int
    ttft_p50_ns: int | None
    ttft_p99_ns: int | None
    itl_mean_ns: int | None
    itl_p50_ns: int | None
    itl_p99_ns: int | None

    def to_json(self) -> dict[str, int | None]:
        return asdict(self)


def latency(requests: RequestTable, window: Window, tokens: int | None) -> Latency | None:
    """From the record of requests. ``tokens``: all that they were given, if known. None where nothing was recorded."""
    if not len(requests):
        return None
    ttft = _since(requests, RequestEvent.ARRIVE, RequestEvent.FIRST, window)
    between = _between_tokens(requests, window)
    finished = _since(requests, RequestEvent.FIRST, RequestEvent.FINISH, window)
    mean = int(between.mean()) if len(between) else _mean_from_ends(requests, finished, tokens)
    return Latency(
        n_first=len(ttft),
        n_finished=len(finished),
        ttft_p50_ns=_rank(ttft, 50),
        ttft_p99_ns=_rank(ttft, 99),
        itl_mean_ns=mean,
        itl_p50_ns=_rank(between, 50),
        itl_p99_ns=_rank(between, 99),
    )


def _since(requests: RequestTable, event: RequestEvent, until: RequestEvent, window: Window) -> Int64:
    """Ascending times from one event of a request to another that lies in the window; the earliest where repeated."""
    begun, begin = _earliest(requests, event)
    ended, end = _earliest(requests, until)
    _, of_begun, of_ended = np.intersect1d(begun, ended, assume_unique=True, return_indices=True)
    within = (end[of_ended] >= window.start_ns) & (end[of_ended] <= window.end_ns)
    return np.sort((end[of_ended] - begin[of_begun])[within])


def _earliest(requests: RequestTable, event: RequestEvent) -> tuple[Int64, Int64]:
    """(request, time) of the first such event of each request."""
    rows = np.flatnonzero(requests.event == event)
    request, first = np.unique(requests.request[rows], return_index=True)  # the table is in the order of time
    return request, requests.time_ns[rows[first]]


def _between_tokens(requests: RequestTable, window: Window) -> Int64:
    """Ascending times between successive tokens of a request, where its tokens after the first were recorded."""
    rows = np.flatnonzero(np.isin(requests.event, (RequestEvent.FIRST, RequestEvent.TOKEN)))
    rows = rows[np.argsort(requests.request[rows], kind="stable")]
    time, request = requests.time_ns[rows], requests.request[rows]
    later = time[1:]
    counted = (request[1:] == request[:-1]) & (later >= window.start_ns) & (later <= window.end_ns)
    return np.sort(np.diff(time)[counted])


def _mean_from_ends(requests: RequestTable, first_to_last: Int64, tokens: int | None) -> int | None:
    """All time from first to last tokens, over the tokens after the first; only where every request has ended."""
    n_requests = len(np.unique(requests.request))
    if tokens is None or len(first_to_last) != n_requests or tokens <= n_requests:
        return None
    return int(first_to_last.sum()) // (tokens - n_requests)


def _rank(ascending: Int64, percent: int) -> int | None:
    return nearest_rank(ascending, percent) if len(ascending) else None
