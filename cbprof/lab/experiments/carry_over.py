"""The token that the host has not seen yet."""

from __future__ import annotations

from dataclasses import dataclass

from cbprof.engine.batch import Batch
from cbprof.engine.run import Run
from cbprof.lab.finding import Finding, NamedTrace, Table
from cbprof.lab.lab import Lab
from cbprof.lab.measure import device_spans, host_spans, median
from cbprof.lab.serving import serve, workload_of
from cbprof.numbers import duration
from cbprof.trace import Kind


def carry_over(lab: Lab) -> Finding:
    """Batch N+1 needs the tokens of batch N before the host knows them: they go from output to input on the device.

    The host writes a placeholder where such a token belongs, and beside it the row of batch N that it will come from.
    On the device a mask puts the tokens in: ``where(row >= 0, output_N[row], placeholder)``. Without it the model reads
    placeholders.
    """
    workload = workload_of(lab)
    sync = serve(lab, workload, "sync")
    carried = serve(lab, workload, "async", _CountingRun)
    forgotten = serve(lab, workload, "async", _ForgetfulRun)

    assert isinstance(carried.run, _CountingRun)
    trace = carried.trace
    compute, update = device_spans(trace, Kind.GPU_COMPUTE), host_spans(trace, "update")
    ahead = update.end[:-1] - compute.start[1:]  # how long before the host knew N the device began N+1
    same = sum(carried.tokens[request] == tokens for request, tokens in sync.tokens.items())
    differ = sum(forgotten.tokens[request] != tokens for request, tokens in sync.tokens.items())
    requests, steps = len(sync.tokens), len(compute.start)
    return Finding(
        "carry-over",
        f"{carried.run.carried} tokens went from batch to batch on the device, {duration(median(ahead))} before the "
        f"host knew them; {same} of {requests} requests got the tokens of the sync run, and {requests - differ} of "
        f"{requests} when the mask was left out",
        ok=carried.run.carried > 0
        and same == requests
        and differ == requests
        and (median(ahead) > 0 or not lab.times_are_its_own),
        unchecked=lab.unchecked("that the device had them before the host knew them"),
        table=Table(
            ("", "requests with the tokens of the sync run"),
            [("carried over", f"{same} of {requests}"), ("placeholders left in", f"{requests - differ} of {requests}")],
        ),
        figures={
            "carried_tokens": carried.run.carried,
            "steps": steps,
            "steps_ahead_of_host": int((ahead > 0).sum()),
            "ahead_ns": median(ahead),
            "requests": requests,
            "identical_requests": same,
            "differ_without_mask": differ,
        },
        traces=(NamedTrace("async", trace),),
    )


@dataclass
class _CountingRun(Run):
    """Counts the tokens that are carried over."""

    carried: int = 0

    def schedule(self, step: int) -> Batch | None:
        batch = super().schedule(step)
        if batch is not None:
            self.carried += sum(row.carry >= 0 for row in batch.rows)
        return batch


class _ForgetfulRun(Run):
    """Forgets to say where the token comes from: the placeholder stays."""

    def schedule(self, step: int) -> Batch | None:
        batch = super().schedule(step)
        return batch and Batch(batch.step, tuple(row._replace(carry=-1) for row in batch.rows))
