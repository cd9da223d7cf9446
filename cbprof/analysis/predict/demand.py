"""What the requests of a trace ask for, and the limits of the engine that served them: what a batch is formed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cbprof.analysis.predict.batching import NEVER, Demand, Limits
from cbprof.analysis.predict.host_work import Batches
from cbprof.riders import RiderTable
from cbprof.trace import Int64, RequestEvent, RequestTable, Trace

LONG_AGO = -NEVER


def demands(trace: Trace, batches: Batches, decided: Int64) -> tuple[Demand, ...]:
    """The requests that ride in ``batches``, which the host decided on at ``decided`` (one time a batch).

    Empty where the trace does not tell: no riders, or a request whose first steps were not recorded. A request that no
    arrival was noted of came when it was first seen, unless it may have waited for a seat: then it was there.
    """
    riders = trace.riders
    row = batches.row_of(riders.step)
    if not len(riders) or (row < 0).any() or (riders.start < 0).any():
        return ()
    arrivals = _times(trace.requests, RequestEvent.ARRIVE)
    tokens, finished = _tokens(trace.requests), _times(trace.requests, RequestEvent.FINISH)
    rode = np.bincount(row, minlength=len(batches))
    seats = limits(trace).requests
    workload = trace.meta.workload or {}
    found = []
    order = np.argsort(riders.request, kind="stable")
    requests, first = np.unique(riders.request[order], return_index=True)
    for request, mine in zip(requests.tolist(), np.split(order, first[1:]), strict=True):
        samples = riders.samples[mine] == 1
        reach = (riders.start + riders.tokens)[mine]
        if riders.start[mine[0]] != 0:
            return ()
        sampled, began = int(samples.sum()), int(row[mine[0]])
        output = max(1, min(tokens.get(request, sampled), sampled) if request in finished else sampled)
        seen = int(decided[began]) if began == 0 or rode[began - 1] < seats else LONG_AGO
        found.append(
            Demand(
                request,
                arrivals.get(request, seen),
                prompt=int(reach[samples.argmax()] if sampled else reach[-1]),
                output=output,
                stops=request in finished and (output < sampled or _stops_early(workload, output)),
            )
        )
    return tuple(found)


def _stops_early(workload: Mapping[str, Any], output: int) -> bool:
    """Whether a request that ended after so many tokens met a stop token, as far as the workload says."""
    longest = workload.get("new_tokens")
    most = longest[-1] if isinstance(longest, list | tuple) and longest and isinstance(longest[-1], int) else NEVER
    return bool(workload.get("stop_tokens")) and output < most


def limits(trace: Trace) -> Limits:
    """Of the engine, as its configuration says, or else as far as was seen."""
    riders, config = trace.riders, trace.meta.config or {}
    _, step = np.unique(riders.step, return_inverse=True)
    requests = _number(config, "max_batch") or int(np.bincount(step).max(initial=1))
    tokens = _number(config, "max_batch_tokens") or int(np.bincount(step, riders.tokens).max(initial=1))
    chunk = _number(config, "prefill_chunk") or tokens
    size, context, blocks = (_number(config, key) for key in ("block_size", "max_context", "num_blocks"))
    if not (size and context):
        return Limits(requests, tokens, chunk)
    return Limits(requests, tokens, chunk, blocks or requests * -(-context // size), size)


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else 0


def _times(table: RequestTable, event: RequestEvent) -> dict[int, int]:
    rows = np.flatnonzero(table.event == event)[::-1]
    return dict(zip(table.request[rows].tolist(), table.time_ns[rows].tolist(), strict=True))


def _tokens(table: RequestTable) -> dict[int, int]:
    """How many tokens each request got, of those that every token was noted of."""
    came = (table.event == RequestEvent.FIRST) | (table.event == RequestEvent.TOKEN)
    request, count = np.unique(table.request[came], return_counts=True)
    known = set(table.request[table.event == RequestEvent.FIRST].tolist())
    return {each: n for each, n in zip(request.tolist(), count.tolist(), strict=True) if each in known}


def formed(riders: RiderTable, batches: Batches) -> list[dict[int, int]]:
    """For each batch, how many tokens of which request it works on."""
    found: list[dict[int, int]] = [{} for _ in range(len(batches))]
    row = batches.row_of(riders.step).tolist()
    for batch, request, tokens in zip(row, riders.request.tolist(), riders.tokens.tolist(), strict=True):
        found[batch][request] = tokens
    return found
