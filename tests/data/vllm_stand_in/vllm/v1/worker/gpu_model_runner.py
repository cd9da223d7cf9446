from vllm.forward_context import set_forward_context
from vllm.v1.worker.worker_base import AsyncModelRunnerOutput


class CopyEvent:
    def synchronize(self):
        pass


class AsyncGPUModelRunnerOutput(AsyncModelRunnerOutput):
    def __init__(self, model_runner_output, async_output_copy_stream=None):
        self.model_runner_output = model_runner_output
        self.async_copy_ready_event = CopyEvent()

    def get_output(self):
        self.async_copy_ready_event.synchronize()
        return self.model_runner_output


def forward(last_tokens):
    return {name: (sum(prompt) * 31 + 7 * produced) % 101 for name, (prompt, produced) in last_tokens.items()}


class GPUModelRunner:
    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self.state = None

    def capture_model(self):
        return 0

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        if not scheduler_output.total_num_scheduled_tokens:
            return {}
        self._prepare_inputs(scheduler_output)
        self._build_attention_metadata()
        self._preprocess(scheduler_output)
        with set_forward_context(None, self.vllm_config):
            self.state = forward(scheduler_output.last_tokens)
        return None

    def _prepare_inputs(self, scheduler_output):
        pass

    def _build_attention_metadata(self):
        pass

    def _preprocess(self, scheduler_output):
        pass

    def sample_tokens(self, grammar_output):
        tokens, self.state = self.state, None
        if self.vllm_config.scheduler_config.async_scheduling:
            return AsyncGPUModelRunnerOutput(tokens, async_output_copy_stream=self.vllm_config.copy_stream)
        return dict(self._to_list(tokens))

    def _to_list(self, sampled_token_ids):
        return list(sampled_token_ids.items())
