from concurrent.futures import Future

from vllm.v1.worker.worker_base import AsyncModelRunnerOutput, WorkerWrapperBase


class AsyncOutputFuture(Future):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def result(self, timeout=None):
        return self.output.get_output()


class UniProcExecutor:
    def __init__(self, vllm_config):
        self.driver_worker = WorkerWrapperBase(vllm_config)
        self.driver_worker.worker.determine_available_memory()
        self.driver_worker.worker.compile_or_warm_up_model()

    def execute_model(self, scheduler_output, non_block=False):
        return self._run("execute_model", scheduler_output, non_block)

    def sample_tokens(self, grammar_output, non_block=False):
        return self._run("sample_tokens", grammar_output, non_block)

    def _run(self, method, argument, non_block):
        result = getattr(self.driver_worker.worker, method)(argument)
        if not non_block:
            return result
        if isinstance(result, AsyncModelRunnerOutput):
            return AsyncOutputFuture(result)
        future = Future()
        future.set_result(result)
        return future

    def shutdown(self):
        pass
