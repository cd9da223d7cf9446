class AsyncModelRunnerOutput:
    pass


class WorkerWrapperBase:
    def __init__(self, vllm_config, global_rank=0):
        from vllm.v1.worker.gpu_worker import Worker

        self.global_rank = self.rpc_rank = global_rank
        self.worker = Worker(vllm_config)
