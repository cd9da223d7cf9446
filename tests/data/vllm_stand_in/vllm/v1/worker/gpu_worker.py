class Worker:
    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        if vllm_config.runner == 1:
            from vllm.v1.worker.gpu_model_runner import GPUModelRunner
        else:
            from vllm.v1.worker.gpu.model_runner import GPUModelRunner
        self.model_runner = GPUModelRunner(vllm_config)

    def determine_available_memory(self):
        return 1

    def compile_or_warm_up_model(self):
        self.model_runner.capture_model()

    def execute_model(self, scheduler_output):
        return self.model_runner.execute_model(scheduler_output)

    def sample_tokens(self, grammar_output):
        return self.model_runner.sample_tokens(grammar_output)
