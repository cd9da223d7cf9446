"""The workloads that predictions are judged by in virtual time: see docs/predict.md for the table of their errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from virtual_time import Costs, stop_tokens

from cbprof.engine.config import EngineConfig, Mode
from cbprof.engine.workload import Workload

LENGTHS, OPEN, EARLY = "requests end by length", "requests arrive", "stop tokens"


@dataclass(frozen=True)
class Case:
    """A workload; what it is measured as, and what it is predicted as. ``steps_per_sync``: of the multi-step loop."""

    name: str
    kind: str
    config: EngineConfig
    workload: Workload
    costs: Costs
    measured: Mode = "sync"
    predicted: Mode = "async"
    steps_per_sync: int = 4

    def config_of(self, mode: Mode) -> EngineConfig:
        return replace(self.config, slots=self.steps_per_sync) if mode == "multi" else self.config

    @property
    def order(self) -> dict[str, int]:
        """Of the predicted loop, as ``predict`` takes it."""
        return (
            {"steps_per_sync": self.steps_per_sync}
            if self.predicted == "multi"
            else {"slots": 1 + (self.predicted == "async")}
        )


def case(
    name: str,
    costs: Costs,
    *,
    kind: str = LENGTHS,
    measured: Mode = "sync",
    predicted: Mode = "async",
    steps_per_sync: int = 4,
    config: dict[str, Any] | None = None,
    **workload: Any,
) -> Case:
    limits = {"max_batch": 8, "max_batch_tokens": 512, "prefill_chunk": 512, "max_context": 512, **(config or {})}
    served = {"requests": 12, "prompt_len": (20, 60), "new_tokens": (40, 80), **workload}
    return Case(name, kind, EngineConfig(**limits), Workload(**served), costs, measured, predicted, steps_per_sync)


GPU = Costs(compute=5000)
HOST = Costs(compute=300, compute_token=1)
EVEN = Costs(compute=600, compute_token=1)

CASES = (
    case("GPU-bound", GPU),
    case("host-bound", HOST),
    case("balanced", EVEN),
    case("preemption", GPU, config={"num_blocks": 20, "max_context": 160}),
    case("preemption, host-bound", HOST, config={"num_blocks": 20, "max_context": 160}),
    case("chunked prefill", GPU, config={"max_batch_tokens": 32, "prefill_chunk": 16}, prompt_len=(60, 200)),
    case("chunked prefill, host-bound", HOST, config={"max_batch_tokens": 32, "prefill_chunk": 16}),
    case("slow copies", Costs(compute=1500, h2d=700, d2h=500)),
    case("copies bound", Costs(compute=500, h2d=900, d2h=800)),
    case("jitter 20 %", Costs(compute=1500, jitter=0.2)),
    case("jitter 50 %, balanced", Costs(compute=600, compute_token=1, jitter=0.5)),
    case("glue of 50 us", Costs(compute=2000, glue=50)),
    case("glue of 50 us, host-bound", Costs(compute=300, compute_token=1, glue=50)),
    case("wake-up of 200 us", Costs(compute=2000, wake=200)),
    case("wake-up of 200 us, host-bound", Costs(compute=300, compute_token=1, wake=200)),
    case("glue, wake-up and jitter", Costs(compute=800, glue=30, wake=100, jitter=0.2)),
    case("arrivals at 5/s", GPU, kind=OPEN, rate=5.0, requests=20),
    case("arrivals at 20/s", GPU, kind=OPEN, rate=20.0, requests=40),
    case("arrivals at 60/s", GPU, kind=OPEN, rate=60.0, requests=80),
    case("arrivals at 20/s, host-bound", HOST, kind=OPEN, rate=20.0, requests=40),
    case("arrivals at 60/s, host-bound", HOST, kind=OPEN, rate=60.0, requests=80),
    *(
        case(f"stop tokens, mean {mean}", GPU, kind=EARLY, requests=count, new_tokens=(400, 400),
             stop_tokens=stop_tokens(mean))
        for mean, count in ((110, 24), (53, 40), (15, 80), (6, 100), (3, 120))
    ),
    case("stop tokens, mean 15, host-bound", HOST, kind=EARLY, requests=80, new_tokens=(400, 400),
         stop_tokens=stop_tokens(15)),
    case("arrivals at 20/s and stop tokens", GPU, kind=EARLY, rate=20.0, requests=40, new_tokens=(400, 400),
         stop_tokens=stop_tokens(50)),
    case("arrivals at 20/s, jitter 20 %", Costs(compute=5000, jitter=0.2), kind=OPEN, rate=20.0, requests=40),
    case("stop tokens, mean 6, jitter 20 %", Costs(compute=5000, jitter=0.2), kind=EARLY, requests=100,
         new_tokens=(400, 400), stop_tokens=stop_tokens(6)),
    case("stop tokens and preemption", GPU, kind=EARLY, requests=40, new_tokens=(100, 100),
         stop_tokens=stop_tokens(50), config={"num_blocks": 20, "max_context": 160}),
    case("stop tokens and chunked prefill", GPU, kind=EARLY, requests=40, prompt_len=(60, 200), new_tokens=(100, 100),
         stop_tokens=stop_tokens(15), config={"max_batch_tokens": 32, "prefill_chunk": 16}),
    case("async to sync, arrivals and stop tokens", GPU, kind=EARLY, measured="async", predicted="sync", rate=20.0,
         requests=40, new_tokens=(400, 400), stop_tokens=stop_tokens(50)),
    case("async on itself", EVEN, measured="async"),
    case("async on itself, glue and wake-up", Costs(compute=600, glue=50, wake=100), measured="async"),
    case("sync on itself", EVEN, predicted="sync"),
    case("sync on itself, glue and wake-up", Costs(compute=600, glue=50, wake=200), predicted="sync"),
    case("sync on itself, arrivals", EVEN, kind=OPEN, predicted="sync", rate=20.0, requests=40),
    case("async to sync", EVEN, measured="async", predicted="sync"),
    case("async to sync, GPU-bound", GPU, measured="async", predicted="sync"),
    *(case(f"bursts of {steps}", EVEN, predicted="multi", steps_per_sync=steps) for steps in (2, 4, 8)),
    case("bursts, GPU-bound", GPU, predicted="multi"),
    case("bursts, host-bound", HOST, predicted="multi"),
    case("bursts, preemption", GPU, predicted="multi", config={"num_blocks": 20, "max_context": 160}),
    case("bursts, slow copies", Costs(compute=1500, h2d=700, d2h=500), predicted="multi"),
    case("bursts, wake-up of 200 us and jitter", Costs(compute=800, wake=200, jitter=0.2), predicted="multi"),
    case("bursts, arrivals at 20/s", GPU, kind=OPEN, predicted="multi", rate=20.0, requests=40),
    case("bursts, stop tokens, mean 15", GPU, kind=EARLY, predicted="multi", requests=80, new_tokens=(400, 400),
         stop_tokens=stop_tokens(15)),
    case("bursts to sync, preemption", GPU, measured="multi", predicted="sync",
         config={"num_blocks": 20, "max_context": 160}),
    case("bursts to async, stop tokens, mean 15", EVEN, kind=EARLY, measured="multi", requests=80,
         new_tokens=(400, 400), stop_tokens=stop_tokens(15)),
    case("bursts on themselves", EVEN, measured="multi", predicted="multi"),
)  # fmt: skip

BARS = {LENGTHS: 0.01, OPEN: 0.01, EARLY: 0.01}
