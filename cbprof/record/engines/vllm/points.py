"""Which methods of vLLM are which phases. Everything that depends on its version stands here.

::

    front end           engine core                             worker
    (LLM, the server)   (one a data-parallel rank)              (one a GPU; in the engine core, if there is but one)
    deliver, ipc   <->  iteration [ schedule | wait | update ]  <->  prepare [ inputs | launch ], sample [ fetch ], wait
"""

from __future__ import annotations

from typing import NamedTuple


class WrapPoint(NamedTuple):
    """``method`` of class ``owner`` (empty: a function) of ``module``, the phase that it is, and its hook.

    ``hook`` is a method of :class:`~cbprof.record.engines.vllm.core.CorePhases` or of
    :class:`~cbprof.record.engines.vllm.runner.RunnerPhases`. ``optional``: only some versions or platforms have it,
    and without it nothing is missing.
    """

    module: str
    owner: str
    method: str
    hook: str
    phase: str
    optional: bool = False


_CORE = "vllm.v1.engine.core"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_MULTIPROC = "vllm.v1.executor.multiproc_executor"
_CLIENT = "vllm.v1.engine.core_client"
_OUTPUTS = "vllm.v1.engine.output_processor"
_WORKER = "vllm.v1.worker.worker_base"
_V1 = "vllm.v1.worker.gpu_model_runner"
_V2 = "vllm.v1.worker.gpu.model_runner"

POINTS = (
    # Which process is this?
    WrapPoint(_CORE, "EngineCore", "__init__", "begins_as_core", "which process this is"),
    WrapPoint(_WORKER, "WorkerWrapperBase", "__init__", "begins_as_worker", "which process this is"),
    WrapPoint(_OUTPUTS, "OutputProcessor", "__init__", "begins_as_front_end", "which process this is"),
    WrapPoint(_CORE, "EngineCore", "shutdown", "ends", "the end of the run"),
    WrapPoint(_MULTIPROC, "WorkerProc", "shutdown", "ends", "the end of the run"),
    # The front end
    WrapPoint(_OUTPUTS, "OutputProcessor", "process_outputs", "deliver", "deliver"),
    WrapPoint(_CLIENT, "SyncMPClient", "get_output", "await_core", "ipc"),
    # The engine core
    WrapPoint(_CORE, "EngineCoreProc", "_process_input_queue", "poll", "no_requests"),
    WrapPoint(_CORE, "EngineCoreProc", "_handle_client_request", "receive", "ipc"),
    WrapPoint(_CORE, "EngineCoreProc", "_process_engine_step", "iteration", "iteration"),
    WrapPoint(_CLIENT, "InprocClient", "get_output", "iteration", "iteration"),
    WrapPoint(_SCHEDULER, "Scheduler", "add_request", "arrive", "the arrival of requests"),
    WrapPoint(_SCHEDULER, "Scheduler", "schedule", "schedule", "schedule"),
    WrapPoint(_SCHEDULER, "Scheduler", "update_from_output", "update", "update"),
    WrapPoint("vllm.v1.serial_utils", "MsgpackEncoder", "encode_into", "encode", "ipc"),
    # Between the engine core and workers of their own
    WrapPoint(_MULTIPROC, "MultiprocExecutor", "execute_model", "send_batch", "ipc"),
    WrapPoint(_MULTIPROC, "MultiprocExecutor", "sample_tokens", "send", "ipc"),
    WrapPoint(_MULTIPROC, "FutureWrapper", "__init__", "expect", "wait for workers"),
    WrapPoint(_MULTIPROC, "FutureWrapper", "result", "await_worker", "wait for workers"),
    WrapPoint(_MULTIPROC, "WorkerProc", "enqueue_output", "send_output", "ipc"),
    WrapPoint("vllm.distributed.device_communicators.shm_broadcast", "MessageQueue", "dequeue", "await_message", "ipc"),
    # The model runner, V1 and V2
    WrapPoint(_V1, "GPUModelRunner", "execute_model", "prepare", "prepare"),
    WrapPoint(_V2, "GPUModelRunner", "execute_model", "prepare", "prepare"),
    WrapPoint(_V1, "GPUModelRunner", "_prepare_inputs", "inputs", "inputs"),
    WrapPoint(_V1, "GPUModelRunner", "_build_attention_metadata", "inputs", "inputs"),
    WrapPoint(_V1, "GPUModelRunner", "_preprocess", "inputs", "inputs"),
    WrapPoint(_V2, "GPUModelRunner", "prepare_inputs", "inputs", "inputs"),
    WrapPoint(_V2, "GPUModelRunner", "prepare_attn", "inputs", "inputs"),
    WrapPoint("vllm.v1.worker.gpu.model_states.default", "DefaultModelState", "prepare_attn", "inputs", "inputs"),
    WrapPoint(_V1, "", "set_forward_context", "forward", "compute"),
    WrapPoint(_V2, "", "set_forward_context", "forward", "compute"),
    WrapPoint("vllm.v1.worker.gpu.cudagraph_utils", "ModelCudaGraphManager", "run_fullgraph", "replay", "compute"),
    WrapPoint(_V1, "GPUModelRunner", "sample_tokens", "sample", "sample"),
    WrapPoint(_V2, "GPUModelRunner", "sample_tokens", "sample", "sample"),
    WrapPoint(_V1, "AsyncGPUModelRunnerOutput", "__init__", "fetch", "fetch"),
    WrapPoint("vllm.v1.worker.gpu.async_utils", "AsyncOutput", "__init__", "fetch", "fetch"),
    WrapPoint(_V1, "AsyncGPUModelRunnerOutput", "get_output", "wait", "wait"),
    WrapPoint("vllm.v1.worker.gpu.async_utils", "AsyncOutput", "get_output", "wait", "wait"),
    WrapPoint(_V1, "GPUModelRunner", "_to_list", "wait_at_once", "wait"),
    WrapPoint("vllm.v1.worker.cpu_model_runner", "CPUModelRunner", "_to_list", "wait_at_once", "wait", optional=True),
    # Once
    WrapPoint(_V1, "GPUModelRunner", "capture_model", "capture", "capture"),
    WrapPoint(_V2, "GPUModelRunner", "capture_model", "capture", "capture"),
    WrapPoint("vllm.v1.worker.gpu_worker", "Worker", "determine_available_memory", "warmup", "warmup"),
    WrapPoint("vllm.v1.worker.gpu_worker", "Worker", "compile_or_warm_up_model", "warmup", "warmup"),
    WrapPoint("vllm.v1.worker.cpu_worker", "CPUWorker", "compile_or_warm_up_model", "warmup", "warmup", optional=True),
)

MODULES = tuple(dict.fromkeys(point.module for point in POINTS))
"""The modules that are instrumented, each when it has been imported."""


def points_of(module: str) -> tuple[WrapPoint, ...]:
    return tuple(point for point in POINTS if point.module == module)
