import multiprocessing
import pickle

from vllm.v1.engine.core import EngineCore, EngineCoreProc


class InprocClient:
    def __init__(self, vllm_config):
        self.core = EngineCore(vllm_config)

    def add_requests(self, requests):
        for request in requests:
            self.core.scheduler.add_request(request)

    def get_output(self):
        outputs, _ = self.core.step_fn()
        return (outputs or {}).get(0)

    def shutdown(self):
        self.core.shutdown()


class SyncMPClient:
    def __init__(self, vllm_config, method):
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context(method)
        self.process = context.Process(target=EngineCoreProc.run_engine_core, args=(vllm_config, theirs))
        self.process.start()
        theirs.close()

    def add_requests(self, requests):
        self.pipe.send(("add", requests))  # at once, so that they share their first batch

    def get_output(self):
        return pickle.loads(self.pipe.recv_bytes())[1]

    def shutdown(self):
        self.pipe.send(("stop", None))
        self.process.join()
