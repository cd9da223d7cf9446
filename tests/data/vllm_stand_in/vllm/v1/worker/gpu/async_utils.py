from vllm.v1.worker.gpu_model_runner import CopyEvent
from vllm.v1.worker.worker_base import AsyncModelRunnerOutput


class AsyncOutput(AsyncModelRunnerOutput):
    def __init__(self, model_runner_output, main_stream=None, copy_stream=None):
        self.model_runner_output = model_runner_output
        self.copy_event = CopyEvent()

    def get_output(self):
        self.copy_event.synchronize()
        return self.model_runner_output
