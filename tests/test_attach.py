"""transformers recorded from outside: the same tokens, every phase on its batch, and nothing left behind."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("psutil", reason="transformers' continuous batching needs it on a CPU")
import torch
import transformers
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import ContinuousBatchingManager
from transformers_batching import NEW_TOKENS, PROMPTS, Stream, generate, tiny_model

import cbprof
from cbprof.analysis.summary import summarize
from cbprof.engine.config import EngineConfig
from cbprof.engine.workload import Workload
from cbprof.errors import EngineError, UsageError
from cbprof.formats import load
from cbprof.record.clocks.base import BlockingClock
from cbprof.record.engines.transformers import attach as attach_module
from cbprof.record.engines.transformers import attention
from cbprof.record.engines.transformers.attach import PACKAGE, POINTS, Instrumented
from cbprof.record.engines.transformers.attention import use_torch_flash
from cbprof.record.engines.transformers.loop import LANE, InFlight, Loop, LoopPhases
from cbprof.record.engines.transformers.serve import TransformersEngine
from cbprof.record.session import open_engine
from cbprof.record.tracer import Tracer
from cbprof.record.wrapping import standing_aside
from cbprof.trace import NONE, Kind, RequestEvent, Trace, TraceBuilder

# What the host does for each batch, whatever the mode.
EACH_STEP = {"iteration", "prepare", "schedule", "inputs", "dispatch", "update", "wait", "read"}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture(scope="module")
def tokens(model: Any) -> dict[str, list[int]]:
    """The tokens when nobody watches."""
    return generate(model)


def methods() -> dict[str, Any]:
    """Everything that may be wrapped, as it is now."""
    return {
        f"{point.module}.{owner.__name__}.{point.method}": vars(owner)[point.method]
        for point in POINTS
        for owner in attach_module._owners(point)
        if point.method in vars(owner)
    }


def steps_of(trace: Trace, name: str, *, device: bool = False) -> list[int]:
    """The steps of the spans of a name, in the order of their starts."""
    if name not in trace.names:
        return []
    mask = (trace.name_id == trace.names.index(name)) & (trace.on_device == device) & (trace.step != NONE)
    return [int(step) for step in trace.step[mask]]


def test_sync_is_recorded_and_left_as_it_was(
    model: Any, tokens: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = methods()
    assert len(before) >= sum(not point.optional for point in POINTS)
    with cbprof.attach("transformers", path=tmp_path / "trace.json") as attachment:
        assert not set(methods().values()) & set(before.values())
        assert generate(model) == tokens
    assert methods() == before
    assert generate(model) == tokens

    trace = load(tmp_path / "trace.json")
    assert (trace.complete, trace.mode, trace.evidence) == (True, "sync", "emulated")
    assert trace.meta.engine.startswith("transformers ")
    assert trace.meta.tokens == len(PROMPTS) * NEW_TOKENS == attachment.recorded.tokens
    for name in EACH_STEP - {"iteration", "prepare"}:
        assert steps_of(trace, name) == list(range(NEW_TOKENS))
    assert set(steps_of(trace, "prepare")) == set(range(NEW_TOKENS + 1))  # the last one finds nothing to do
    assert steps_of(trace, "compute", device=True) == list(range(NEW_TOKENS))
    assert steps_of(trace, "deliver") == [NEW_TOKENS - 1]
    assert "no_requests" in trace.names
    assert {lane.name for lane in trace.lanes} == {"main", LANE, "compute"}  # the warm-up is on main

    steps = trace.steps
    assert list(steps.tokens) == [sum(map(len, PROMPTS))] + [3] * (NEW_TOKENS - 1)
    assert list(steps.context) == [sum(map(len, PROMPTS)) + 3 * step for step in range(NEW_TOKENS)]
    assert list(steps.phase) == [0] + [1] * (NEW_TOKENS - 1)
    counts = Counter(int(event) for event in trace.requests.event)
    later = 3 * (NEW_TOKENS - 1)
    assert counts == {
        RequestEvent.ARRIVE: 3,
        RequestEvent.FIRST: 3,
        RequestEvent.TOKEN: later,
        RequestEvent.FINISH: 3,
    }

    device = summarize(trace).devices[0]
    assert device.idle_pct is not None
    assert 0 < device.idle_pct < 100


def test_async_is_recorded_on_its_streams_with_the_batch_of_each_span(
    model: Any, tokens: dict[str, list[int]], tmp_path: Path
) -> None:
    with cbprof.attach("transformers", path=tmp_path / "trace.json", device=BlockingClock()):
        assert generate(model, ahead=True) == tokens
    trace = load(tmp_path / "trace.json")
    assert trace.mode == "async"
    # Async finds out only in the update of the last batch that a request has ended: none here, lengths are known there.
    ran = steps_of(trace, "compute", device=True)
    assert ran == list(range(len(ran)))
    assert len(ran) >= NEW_TOKENS
    for name in ("h2d", "d2h"):
        assert steps_of(trace, name, device=True) == ran
    for name in ("h2d", "launch", "fetch", "dispatch", "wait", "read", "update"):
        assert steps_of(trace, name) == ran
    lanes = {lane.name for lane in trace.lanes if lane.on_device}
    assert lanes == {"h2d", "compute", "d2h"}
    slots = {int(step): int(slot) for step, slot in zip(trace.step, trace.slot, strict=True) if slot != NONE}
    assert slots == {step: step % 2 for step in ran}
    # Update N begins after launch N + 1: that is what async means.
    starts = {
        (trace.name_of(i), int(trace.step[i])): int(trace.start_ns[i])
        for i in range(len(trace))
        if not trace.on_device[i]
    }
    for step in ran[:-1]:
        assert starts["update", step] > starts["launch", step + 1]
    assert trace.meta.tokens == len(PROMPTS) * NEW_TOKENS


def test_a_method_that_is_gone_costs_its_phase_and_is_named(
    model: Any, tokens: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.generation.continuous_batching import continuous_api, input_outputs

    router, deliver = continuous_api.OutputRouter, continuous_api.OutputRouter.deliver_batch
    monkeypatch.setattr(router, "deliver_batch", property(deliver.__get__))  # no method any more
    monkeypatch.delattr(input_outputs.HostDeviceIOPair, "transfer_inputs_h2d")  # sync does not use it
    with (
        pytest.warns(RuntimeWarning, match=r"no OutputRouter.deliver_batch .*no HostDeviceIOPair.transfer_inputs_h2d"),
        cbprof.attach("transformers", path=tmp_path / "trace.json"),
    ):
        assert generate(model) == tokens
    trace = load(tmp_path / "trace.json")
    assert "deliver" not in trace.names
    assert steps_of(trace, "compute", device=True) == list(range(NEW_TOKENS))
    assert trace.meta.tokens == len(PROMPTS) * NEW_TOKENS


def test_a_class_that_is_gone_costs_its_phases() -> None:
    point = attach_module.WrapPoint("scheduler", "NoSuchClass", "run", "schedule", "schedule")
    assert list(attach_module._owners(point)) == []
    assert list(attach_module._owners(point._replace(module="no_such_module"))) == []


def test_decorated_functions_are_recorded_one_by_one(model: Any, tmp_path: Path) -> None:
    before = methods()

    @cbprof.attach("transformers", path=tmp_path / "trace.json")
    def serve(fail: bool) -> None:
        generate(model)
        if fail:
            raise RuntimeError("afterwards")

    @cbprof.attach("transformers", TraceBuilder())
    async def awaited() -> bool:
        await asyncio.sleep(0)
        return methods() != before

    assert asyncio.run(awaited())
    serve(False)
    assert load(tmp_path / "trace.json").complete
    with pytest.raises(RuntimeError, match="afterwards"):
        serve(True)
    assert not load(tmp_path / "trace.json").complete
    assert methods() == before


def test_attaching_where_it_cannot_be_done_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot attach to 'sglang', only to transformers, vllm"):
        cbprof.attach("sglang")
    before = methods()
    attachment = cbprof.attach("transformers", TraceBuilder())
    with attachment:
        with pytest.raises(UsageError, match="in use already"):
            attachment.__enter__()
        with pytest.raises(UsageError, match="is recorded already"), cbprof.attach("transformers", TraceBuilder()):
            pass
    with cbprof.attach("transformers", tmp_path / "no" / "x.json") as attachment:  # the program is not to suffer
        assert not attachment.tracer.on
    assert "there is no folder" in str(attachment.tracer.failure)
    assert methods() == before
    monkeypatch.setitem(sys.modules, f"{PACKAGE}.continuous_api", None)
    with pytest.raises(UsageError, match="has no continuous batching that can be imported"):
        Instrumented(Tracer(TraceBuilder()))


def test_the_capture_of_a_graph_is_a_phase_and_computes_once() -> None:
    """The eager run before the capture is the batch's compute; what follows computes nothing."""
    sink, calls = TraceBuilder(), list[str]()
    tracer = Tracer(sink, device=BlockingClock())
    phases = LoopPhases(tracer)

    def forward(*args: Any) -> None:
        calls.append("forward")

    def capture_graph(runner: Any, forward_fn: Callable[..., None], stream: Any, *args: Any) -> None:
        forward_fn(*args)
        forward_fn(*args)

    captured = phases.capture(capture_graph)

    def compute_batch(runner: Any, model: Any, batch_data: Any) -> None:
        captured(runner, forward, runner.inputs_and_outputs.compute_stream, model)

    runner = SimpleNamespace(inputs_and_outputs=SimpleNamespace(compute_stream=Stream()))
    with tracer:
        phases._loop.step = 4
        phases.compute(compute_batch)(runner, None, {})
        phases.warmup(lambda runner: phases.compute(compute_batch)(runner, None, {}))(runner)
    assert calls == ["forward"] * 4
    trace = sink.build()
    ends = {trace.name_of(i): int(trace.end_ns[i]) for i in range(len(trace)) if trace.step[i] == 4}
    assert ends["compute"] < ends["capture"] <= ends["launch"]
    assert sorted(trace.name_of(i) for i in range(len(trace)) if trace.step[i] == NONE) == ["capture", "warmup"]
    assert int(trace.mask(kinds=[Kind.GPU_COMPUTE]).sum()) == 1


def test_updates_find_their_batch_from_the_middle_of_a_run() -> None:
    loop = Loop()
    loop.dispatched = True
    loop.in_flight.append(InFlight(7, 1))
    assert loop.land(ahead=True).step == NONE  # of the batch before, which nobody saw
    loop.in_flight.append(InFlight(8, 0))
    assert loop.land(ahead=True) == InFlight(7, 1)
    loop.dispatched = False  # nothing was, in the iteration before the flush at the end
    assert loop.land(ahead=True) == InFlight(8, 0)
    assert loop.land(ahead=False).step == NONE


# The same workloads as our engine -------------------------------------------------------------------------------------

SMALL = EngineConfig(model="tiny", device="cpu", max_batch=4, max_context=24, block_size=8)


def test_a_workload_is_served_and_recorded(tmp_path: Path) -> None:
    workload = Workload(requests=6, prompt_len=(3, 8), new_tokens=(4, 8), rate=500.0, temperature=0.0, stop_tokens=(5,))
    recorders: list[Any] = []
    with open_engine("transformers", SMALL, ["sync"]) as engine:
        runs = [
            engine.record(workload, "sync", tmp_path / f"{name}.json", cupti=None, watch=recorders.append)
            for name in "ab"
        ]
        requests = workload.make_requests(engine.vocab_size)
    first, second = runs
    assert first.outcome is not None
    assert second.outcome is not None
    assert first.equality.compared == "tokens"
    assert first.outcome.tokens == second.outcome.tokens
    assert list(first.outcome.tokens) == [request.id for request in requests]
    for request in requests:
        got = first.outcome.tokens[request.id]
        assert len(got) == request.max_length - request.prompt_length or got[-1] == 5
    trace = load(first.path)
    assert trace.complete
    assert trace.meta.tokens == first.outcome.counters.tokens == recorders[0].token_count
    assert (trace.meta.model, trace.meta.workload["batch"]) == ("tiny", 4)


def test_ctrl_c_keeps_the_trace_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(requests=4, prompt_len=(3, 3), new_tokens=(16, 16), temperature=0.0)
    with open_engine("transformers", SMALL, ["sync"]) as engine:

        def interrupt(recorder: Any) -> None:
            def get_result(manager: Any, timeout: float) -> None:
                while recorder.token_count < 8:
                    pass
                raise KeyboardInterrupt

            from transformers.generation.continuous_batching import ContinuousBatchingManager

            monkeypatch.setattr(ContinuousBatchingManager, "get_result", get_result)

        run = engine.record(workload, "sync", tmp_path / "trace.json", cupti=None, watch=interrupt)
    assert run.interrupted
    trace = load(run.path)
    assert not trace.complete
    assert trace.meta.tokens >= 8


def test_what_transformers_cannot_serve_is_told() -> None:
    with pytest.raises(UsageError, match="asynchronously on CUDA only: give --mode sync"):
        TransformersEngine(SMALL, ["sync", "async"])
    with pytest.raises(UsageError, match="not on 'host'"):
        TransformersEngine(EngineConfig(device="host"))
    with TransformersEngine(SMALL) as engine:
        (request,) = Workload(requests=1, prompt_len=(3, 3), new_tokens=(2, 2)).make_requests(engine.vocab_size)

        def dies(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("no forward pass")

        engine.model.forward = dies  # and with it the generation thread
        with pytest.raises(EngineError):
            engine.serve([request], "sync")


def varlen_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query_start: torch.Tensor,
    key_start: torch.Tensor,
    most_queries: int,
    most_keys: int,
    dropout: float,
    causal: bool,
    debug: bool,
    *,
    scale: float | None,
) -> tuple[torch.Tensor]:
    """What torch's flash kernel computes on CUDA, row by row: a row's last query sees all of its keys."""
    assert (dropout, causal, debug) == (0.0, True, False)
    output = torch.empty_like(query)
    for row in range(len(query_start) - 1):
        q = slice(int(query_start[row]), int(query_start[row + 1]))
        k = slice(int(key_start[row]), int(key_start[row + 1]))
        lengths = (q.stop - q.start, k.stop - k.start)
        assert lengths[0] <= most_queries
        assert lengths[1] <= most_keys
        repeats = query.shape[1] // keys.shape[1]
        key, value = (part[k].repeat_interleave(repeats, dim=1).transpose(0, 1) for part in (keys, values))
        visible = torch.ones(lengths, dtype=torch.bool).tril(lengths[1] - lengths[0])
        attended = torch.nn.functional.scaled_dot_product_attention(
            query[q].transpose(0, 1), key, value, attn_mask=visible, scale=scale
        )
        output[q] = attended.transpose(0, 1)
    return (output,)


def test_torchs_flash_kernel_is_called_as_it_wants(
    tokens: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", varlen_attention)
    model = tiny_model()
    use_torch_flash(model)
    assert generate(model) == tokens
    assert model.config._attn_implementation == attention.name_for(transformers.__version__)


def test_an_attention_that_is_not_used_is_an_error() -> None:
    assert attention.name_for("5.18.1") == f"paged|{attention.NAME}"
    assert attention.name_for("5.19.0.dev0") == attention.name_for("6.0") == attention.NAME
    with TransformersEngine(SMALL) as engine:
        engine._takes_our_attention = True  # and yet the model has another
        requests = Workload(requests=1, prompt_len=(3, 3), new_tokens=(2, 2)).make_requests(engine.vocab_size)
        with pytest.raises(EngineError, match="did not use the attention it was given"):
            engine.serve(requests, "sync")


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("point", [point for point in POINTS if not point.optional], ids=lambda point: point.method)
def test_whatever_fails_in_a_wrapper_costs_its_phase_and_is_told(
    point: attach_module.WrapPoint,
    before: bool,
    model: Any,
    tokens: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where an attribute of theirs has another name or type, which only shows when it is read."""
    real = getattr(LoopPhases, point.wrapper)

    def failing(phases: LoopPhases, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not before:
                real(phases, original)(*args, **kwargs)
            raise AttributeError("no attribute 'step_io'")

        return call

    monkeypatch.setattr(LoopPhases, point.wrapper, failing)
    called = point.wrapper not in {"h2d", "d2h", "wait_in_update", "capture"}  # of async, and of CUDA
    told = pytest.warns(RuntimeWarning, match=rf"{point.method} is not as cbprof knows it.*step_io")
    with told if called else nullcontext(), cbprof.attach("transformers", TraceBuilder()):
        assert generate(model) == tokens


def test_what_the_engine_itself_raises_goes_on() -> None:
    failures: list[str] = []

    def theirs(number: int) -> int:
        if number < 0:
            raise ValueError("theirs")
        return number

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(number: int) -> Any:
            try:
                return original(number)
            finally:
                if number == -2:
                    raise KeyError("ours")

        return call

    wrapped = standing_aside(wrapper, lambda method, error: failures.append(str(error)))(theirs)
    assert wrapped(3) == 3
    with pytest.raises(ValueError, match="theirs"):
        wrapped(-1)
    assert failures == []
    with pytest.raises(ValueError, match="theirs"):
        wrapped(-2)
    assert failures == ["'ours'"]
    assert wrapped(4) == 4


@pytest.mark.skipif(not hasattr(ContinuousBatchingManager, "pause"), reason="transformers can be paused from 5.18 on")
def test_a_pause_is_no_work(model: Any) -> None:
    sink = TraceBuilder()
    config = ContinuousBatchingConfig(
        use_async_batching=False, use_cuda_graph=False, num_blocks=32, max_batch_tokens=64
    )
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=40)
    with (
        cbprof.attach("transformers", sink),
        model.continuous_batching_context_manager(
            generation_config=generation, continuous_batching_config=config, block=True, timeout=60
        ) as manager,
    ):
        manager.add_request([1, 2, 3], max_new_tokens=40)
        with manager.pause():
            paused_ns = time.perf_counter_ns()
            threading.Event().wait(0.2)
            paused_ns = time.perf_counter_ns() - paused_ns
        while not ((result := manager.get_result(timeout=5)) and result.is_finished()):
            pass
    trace = sink.build()
    waits = (trace.kind == Kind.CPU_WAIT) & (trace.name_id == trace.names.index("no_requests"))
    assert int(trace.dur_ns[waits].max()) >= paused_ns


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_both_modes_give_the_same_tokens_and_device_spans(tmp_path: Path) -> None:
    workload = Workload(requests=8, prompt_len=(16, 16), new_tokens=(64, 64), temperature=0.0)
    config = EngineConfig(model="tiny", device="cuda", max_batch=8, max_context=workload.longest)
    with TransformersEngine(config, ["sync", "async"]) as engine:
        plain = engine.serve(workload.make_requests(engine.vocab_size), "sync").tokens
    with open_engine("transformers", config, ["sync", "async"]) as engine:
        for mode in ("sync", "async"):
            run = engine.record(workload, mode, tmp_path / f"{mode}.json", cupti=None, watch=None)  # type: ignore[arg-type]
            assert run.outcome is not None
            assert run.outcome.tokens == plain
            trace = load(run.path)
            assert trace.evidence == "cuda_events"
            assert (trace.mode, trace.complete) == (mode, True)
            for kind in (Kind.GPU_COMPUTE,) if mode == "sync" else (Kind.GPU_H2D, Kind.GPU_COMPUTE, Kind.GPU_D2H):
                mask = trace.mask(kinds=[kind])
                assert list(trace.step[mask]) == list(range(int(mask.sum())))
                assert (trace.start_ns[mask][1:] >= trace.end_ns[mask][:-1] - trace.meta.device_error_ns).all()
