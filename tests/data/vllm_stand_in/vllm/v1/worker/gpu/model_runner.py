from vllm.forward_context import CUDAGraphMode, set_forward_context
from vllm.v1.worker.gpu.async_utils import AsyncOutput
from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu_model_runner import forward


class GPUModelRunner:
    """Replays a graph where every request gets one token, and is eager else."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self.model_state, self.cudagraph_manager = DefaultModelState(), ModelCudaGraphManager()
        self.state = None

    def capture_model(self):
        return 0

    def execute_model(self, scheduler_output, intermediate_tensors=None, dummy_run=False):
        if not scheduler_output.total_num_scheduled_tokens:
            return {}
        self.prepare_inputs(scheduler_output)
        self.prepare_attn(None)
        self.model_state.prepare_attn()
        self.model_state.prepare_inputs()
        if set(scheduler_output.num_scheduled_tokens.values()) == {1}:
            self.state = self.cudagraph_manager.run_fullgraph(scheduler_output.last_tokens)
        else:
            with set_forward_context(None, self.vllm_config, cudagraph_runtime_mode=CUDAGraphMode.NONE):
                self.state = forward(scheduler_output.last_tokens)
        return None

    def prepare_inputs(self, scheduler_output):
        pass

    def prepare_attn(self, input_batch):
        pass

    def sample_tokens(self, grammar_output):
        tokens, self.state = self.state, None
        output = AsyncOutput(tokens, main_stream=None, copy_stream=self.vllm_config.copy_stream)
        return output if self.vllm_config.scheduler_config.async_scheduling else output.get_output()
