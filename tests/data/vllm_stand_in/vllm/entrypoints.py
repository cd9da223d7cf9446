import os
from types import SimpleNamespace

from vllm.v1.engine import Request
from vllm.v1.engine.core_client import InprocClient, SyncMPClient
from vllm.v1.engine.output_processor import OutputProcessor


class LLM:
    """``method``: how the engine core is started, ``fork``, ``spawn`` or empty for in this process; ``workers``: of
    their own, 0 for none; ``runner``: the version of the model runner, 1 or 2."""

    def __init__(self, method="fork", workers=0, runner=1, ahead=False, copy_stream=None):
        self.config = SimpleNamespace(
            scheduler_config=SimpleNamespace(async_scheduling=ahead),
            model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="toy"), dtype="torch.float32"),
            compilation_config=SimpleNamespace(cudagraph_capture_sizes=[1, 2, 4]),
            copy_stream=copy_stream,
            parallel_config=SimpleNamespace(data_parallel_index=0),
            workers=workers,
            runner=runner,
        )
        self.processor = OutputProcessor()
        self.client = SyncMPClient(self.config, method) if method else InprocClient(self.config)

    def generate(self, prompts, max_tokens):
        self.processor.tokens = {}
        requests = [Request(str(index), prompt, max_tokens) for index, prompt in enumerate(prompts)]
        self.client.add_requests(requests)
        pending = {request.request_id for request in requests}
        while pending:
            outputs = self.client.get_output()
            if outputs is not None:
                pending -= set(self.processor.process_outputs(outputs))
        return self.processor.tokens

    def shutdown(self):
        self.client.shutdown()


def serve(new_tokens=5, **how):
    """The tokens of three requests, twice."""
    llm = LLM(**how)
    try:
        first = llm.generate([[1, 2, 3], [4, 5], [6]], new_tokens)
        if os.environ.get("STAND_IN_FAILS"):
            llm.client.pipe.send(("fail", None))
            llm.client.get_output()
        return first, llm.generate([[7, 8], [9]], new_tokens)
    finally:
        llm.shutdown()
