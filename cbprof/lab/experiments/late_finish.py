"""The request that has ended already, and still rides."""

from __future__ import annotations

from dataclasses import replace

from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.serving import serve, workload_of
from cbprof.numbers import counted


def late_finish(lab: Lab) -> Finding:
    """A request meets its stop token in batch N, and rides in batch N+1 already: one token is wasted, and dropped.

    The end by length is known in advance, so that such a request is not put into another batch. A stop token is seen
    only when batch N is read, one batch too late. The token that N+1 makes for it is thrown away, and its blocks go
    back once, when it ends.
    """
    workload = workload_of(lab, requests_per_seat=2)
    without_stop = serve(lab, workload, "sync").tokens
    # Stop half of the requests somewhere in the middle, by tokens that are sure to come up.
    stop_tokens = {tokens[len(tokens) // 3] for request, tokens in without_stop.items() if request % 2}
    workload = replace(workload, stop_tokens=tuple(sorted(stop_tokens)))
    sync, ahead = serve(lab, workload, "sync"), serve(lab, workload, "async")

    # Whoever stops with its last allowed token would have ended by length, and rides no further.
    stopped = sum(len(tokens) < workload.new_tokens[0] for tokens in ahead.tokens.values())
    dropped, blocks = ahead.run.scheduler.counters.dropped, ahead.run.scheduler.blocks
    finished = ahead.run.scheduler.counters.finished
    identical = sum(ahead.tokens[request] == tokens for request, tokens in sync.tokens.items())
    same_numbers = lab.on_cuda or identical == len(sync.tokens)  # other company in a batch rounds bfloat16 otherwise
    return Finding(
        "late-finish",
        f"{stopped} of {len(ahead.tokens)} requests met a stop token and wasted {counted(dropped, 'token')}, one each "
        f"(the sync loop: {sync.run.scheduler.counters.dropped}); {finished} finished, each once, and "
        f"{blocks.free_blocks} of {blocks.num_blocks} KV blocks are free again",
        ok=stopped > 0
        and dropped == stopped
        and sync.run.scheduler.counters.dropped == 0
        and finished == len(ahead.tokens)
        and blocks.free_blocks == blocks.num_blocks
        and same_numbers,
        unchecked=("that both loops gave the same tokens, since batches differ",) if lab.on_cuda else (),
        table=Table(
            ("", "sync", "async"),
            [
                ("tokens dropped", str(sync.run.scheduler.counters.dropped), str(dropped)),
                ("requests finished", str(sync.run.scheduler.counters.finished), str(finished)),
                ("with the tokens of the sync run", "", f"{identical} of {len(sync.tokens)}"),
            ],
        ),
        figures={
            "requests": len(ahead.tokens),
            "stopped": stopped,
            "dropped": dropped,
            "dropped_sync": sync.run.scheduler.counters.dropped,
            "finished": finished,
            "free_blocks": blocks.free_blocks,
            "blocks": blocks.num_blocks,
            "identical_requests": identical,
        },
        traces=(NamedTrace("async", ahead.trace),),
    )
