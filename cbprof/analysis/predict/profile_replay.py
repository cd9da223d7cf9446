"""The steps of a profile in another order: the loops of :mod:`cbprof.analysis.predict.replay`, block by block.

A block starts once it is launched and the device is free; what a device that was busy hides of its latency is hidden.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from cbprof.analysis.predict.profile import Profile
from cbprof.analysis.predict.whatif import WhatIf
from cbprof.meta import Meta
from cbprof.trace import Int64, Kind, Lane, Trace, TraceBuilder


@dataclass(frozen=True, slots=True, eq=False)
class BlockSchedule:
    """When everything runs: blocks one row each, the host one row a step. ``held_up``: steps the device waited for."""

    block_start: Int64
    block_length: Int64
    before_start: Int64
    wait_start: Int64
    wait_end: Int64
    after_start: Int64
    held_up: tuple[int, ...]


def replay_profile(profile: Profile, what_if: WhatIf, start_ns: int) -> BlockSchedule:
    """One pass over the steps and their blocks, exact integers."""
    size, blocks = len(profile), profile.blocks
    length = what_if.compute_ns(blocks.end - blocks.start)
    costs = (blocks.queued_ns, blocks.latency_ns, length)
    rows = list(zip(*(column.tolist() for column in costs), strict=True))
    bounds = np.searchsorted(blocks.step, np.arange(size + 1)).tolist()
    before, after, waits, tail, poll = (
        column.tolist()
        for column in (profile.before_ns, profile.after_ns, profile.waits, profile.tail_ns, profile.poll_ns)
    )
    starts, ready = [0] * len(rows), [0] * size
    before_start, wait_start, wait_end, after_start = ([0] * size for _ in range(4))
    host = free = start_ns
    flying: deque[int] = deque()
    held_up = []

    def land() -> None:
        nonlocal host
        steps = [flying.popleft() for _ in range(len(flying) if what_if.together else 1)]
        for step in steps:
            wait_start[step] = host
            there = ready[step]
            if waits[step]:
                host = max(host, there + tail[step]) if host < there else host + poll[step]
            wait_end[step] = host
        for step in steps:
            after_start[step] = host
            host += after[step]

    for n in range(size):
        before_start[n] = host
        for block in range(bounds[n], bounds[n + 1]):
            queued, latency, long = rows[block]
            if block == bounds[n] and block and host + queued > free:
                held_up.append(n)
            starts[block] = max(host + queued + latency, free + min(latency, profile.gap_ns))
            free = starts[block] + long
        ready[n] = free
        host += before[n]
        flying.append(n)
        if len(flying) == what_if.slots:
            land()
    while flying:
        land()
    return BlockSchedule(
        block_start=np.array(starts, dtype=np.int64),
        block_length=length,
        before_start=np.array(before_start, dtype=np.int64),
        wait_start=np.array(wait_start, dtype=np.int64),
        wait_end=np.array(wait_end, dtype=np.int64),
        after_start=np.array(after_start, dtype=np.int64),
        held_up=tuple(held_up),
    )


def replayed_trace(profile: Profile, schedule: BlockSchedule, what_if: WhatIf, meta: Meta) -> Trace:
    """The replayed run: the host's work on either side of each wait; what the device did, with the holes in blocks."""
    builder = TraceBuilder()
    host = builder.lane(profile.trace.lanes[profile.lane])
    compute, copy = (builder.lane(Lane(name, profile.device)) for name in ("compute", "copies"))
    slots = what_if.slots
    for n in range(len(profile)):
        begin, wait, waited, after = (
            int(column[n])
            for column in (schedule.before_start, schedule.wait_start, schedule.wait_end, schedule.after_start)
        )
        builder.span(
            host, Kind.CPU_WORK, "before the wait", begin, int(profile.before_ns[n]), step=n, slot=n % slots, link=n
        )
        builder.span(host, Kind.CPU_WAIT, "wait", wait, waited - wait, step=n, slot=n % slots)
        builder.span(host, Kind.CPU_WORK, "after the wait", after, int(profile.after_ns[n]), step=n, slot=n % slots)

    blocks = profile.blocks
    for start, end in zip(profile.active.start.tolist(), profile.active.end.tolist(), strict=True):
        row = int(np.searchsorted(blocks.start, start, side="right")) - 1
        origin, step = int(blocks.start[row]), int(blocks.step[row])
        measured = max(1, int(blocks.end[row]) - origin)
        shrunk = int(schedule.block_length[row])
        at = int(schedule.block_start[row])
        moved = [at + (time - origin) * shrunk // measured for time in (start, end)]
        builder.span(
            compute, Kind.GPU_COMPUTE, "compute", moved[0], moved[1] - moved[0], step=step, slot=step % slots, link=step
        )
    trace, size = profile.trace, len(profile)
    first, last = (np.searchsorted(blocks.step, np.arange(size), side=side) for side in ("left", "right"))
    has = last > first
    to_start = np.zeros(size, dtype=np.int64)
    to_start[has] = (schedule.block_start - blocks.start)[first[has]]
    to_end = to_start.copy()
    to_end[has] = (schedule.block_start + schedule.block_length - blocks.end)[last[has] - 1]
    over = np.full(size, np.iinfo(np.int64).max)
    over[has] = blocks.end[last[has] - 1]
    for row, step in zip(profile.copies.row.tolist(), profile.copies.step.tolist(), strict=True):
        start = int(trace.start_ns[row])
        back = trace.kind[row] == Kind.GPU_D2H
        source = (
            step if not back or start >= over[step] else max(step - 1, 0)
        )  # launched later, but of the batch before
        shift = int(to_end[source] if back else to_start[step])
        builder.span(copy, Kind(trace.kind[row]), "copy", start + shift, int(trace.dur_ns[row]), step=source)
    return builder.build(meta)
