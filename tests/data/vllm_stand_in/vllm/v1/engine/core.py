import os
import queue
import threading
from collections import deque

from vllm.plugins import load_general_plugins
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.serial_utils import MsgpackEncoder


class EngineCore:
    def __init__(self, vllm_config):
        load_general_plugins()
        self.vllm_config = vllm_config
        ahead = vllm_config.scheduler_config.async_scheduling
        self.scheduler = Scheduler(ahead)
        executor = MultiprocExecutor if vllm_config.workers else UniProcExecutor
        self.model_executor = executor(vllm_config)
        self.batch_queue = deque() if ahead else None
        self.step_fn = self.step if self.batch_queue is None else self.step_with_batch_queue
        self.aborts = 0

    def step(self):
        if not self.scheduler.has_requests():
            return {}, False
        output = self.scheduler.schedule()
        future = self.model_executor.execute_model(output, non_block=True)
        result = future.result()
        if result is None:
            result = self.model_executor.sample_tokens(None)
        return self.scheduler.update_from_output(output, result), output.total_num_scheduled_tokens > 0

    def step_with_batch_queue(self):
        executed = False
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            future = self.model_executor.execute_model(output, non_block=True)
            executed = output.total_num_scheduled_tokens > 0
            if executed:
                future = self.model_executor.sample_tokens(None, non_block=True)
            self.batch_queue.appendleft((future, output))
            if executed and len(self.batch_queue) < 2:
                return None, executed
        future, output = self.batch_queue.pop()
        result = future.result()
        return self.scheduler.update_from_output(output, result), executed

    def shutdown(self):
        self.model_executor.shutdown()


class EngineCoreProc(EngineCore):
    """Reads requests from a pipe, writes outputs to it from a thread."""

    def __init__(self, vllm_config, pipe):
        super().__init__(vllm_config)
        self.input_queue, self.output_queue = queue.Queue(), queue.Queue()
        self.pipe, self.running = pipe, True
        threading.Thread(target=self.process_input_sockets, daemon=True).start()
        self.sender = threading.Thread(target=self.process_output_sockets, daemon=True)
        self.sender.start()

    @staticmethod
    def run_engine_core(vllm_config, pipe):
        core = EngineCoreProc(vllm_config, pipe)
        try:
            core.run_busy_loop()
        finally:
            core.shutdown()
            if os.environ.get("STAND_IN_KILLED"):  # as vLLM does with those that take too long
                os._exit(9)

    def has_work(self):
        return self.scheduler.has_requests() or bool(self.batch_queue)

    def run_busy_loop(self):
        while self.running:
            self._process_input_queue()
            if self.running:
                self._process_engine_step()
        self.output_queue.put(None)
        self.sender.join()

    def _process_input_queue(self):
        while not self.has_work() and self.running:
            self._handle_client_request(*self.input_queue.get())
        while not self.input_queue.empty():
            self._handle_client_request(*self.input_queue.get_nowait())

    def _handle_client_request(self, request_type, request):
        if request_type == "add":
            for each in request:
                self.scheduler.add_request(each)
        elif request_type == "fail":
            raise RuntimeError("the engine core failed")
        else:
            self.running = False

    def _process_engine_step(self):
        outputs, executed = self.step_fn()
        for output in (outputs or {}).items():
            self.output_queue.put_nowait(output)
        return executed

    def process_input_sockets(self):
        while True:
            try:
                self.input_queue.put(self.pipe.recv())
            except EOFError:
                return

    def process_output_sockets(self):
        encoder = MsgpackEncoder()
        while (output := self.output_queue.get()) is not None:
            self.pipe.send_bytes(encoder.encode_into(output, bytearray()))
