import multiprocessing
import queue
import threading
from collections import deque
from concurrent.futures import Future

from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.v1.worker.worker_base import AsyncModelRunnerOutput, WorkerWrapperBase


class FutureWrapper(Future):
    def __init__(self, futures_queue, get_response):
        self.futures_queue, self.get_response = futures_queue, get_response
        super().__init__()
        futures_queue.appendleft(self)

    def result(self, timeout=None):
        while not self.done():
            future = self.futures_queue.pop()
            future.set_result(future.get_response())
        return super().result()


class MultiprocExecutor:
    def __init__(self, vllm_config):
        context = multiprocessing.get_context(None if multiprocessing.parent_process() else "fork")
        self.requests, self.futures = MessageQueue(context), deque()
        self.responses = [MessageQueue(context) for _ in range(vllm_config.workers)]
        self.per_worker = [MessageQueue(context) for _ in range(vllm_config.workers)]
        self.workers = [
            context.Process(
                target=WorkerProc.worker_main, args=(vllm_config, rank, self.per_worker[rank], self.responses[rank])
            )
            for rank in range(vllm_config.workers)
        ]
        for worker in self.workers:
            worker.start()

    def execute_model(self, scheduler_output, non_block=False):
        return self._call("execute_model", scheduler_output, non_block)

    def sample_tokens(self, grammar_output, non_block=False):
        return self._call("sample_tokens", grammar_output, non_block)

    def _call(self, method, argument, non_block):
        for messages in self.per_worker:
            messages.enqueue((method, argument))
        future = FutureWrapper(self.futures, self._first_response)
        return future if non_block else future.result()

    def _first_response(self):
        first, *_ = [each.dequeue() for each in self.responses]
        return first

    def shutdown(self):
        for messages in self.per_worker:
            messages.enqueue(None)
        for worker in self.workers:
            worker.join()


class WorkerProc:
    def __init__(self, vllm_config, rank, requests, responses):
        self.worker = WorkerWrapperBase(vllm_config, rank)
        self.worker.worker.compile_or_warm_up_model()
        self.requests, self.responses = requests, responses
        self.ahead = vllm_config.scheduler_config.async_scheduling
        self.outputs = queue.Queue()
        if self.ahead:
            threading.Thread(target=self.async_output_busy_loop, daemon=True).start()

    @staticmethod
    def worker_main(*args):
        worker = WorkerProc(*args)
        try:
            worker.worker_busy_loop()
        finally:
            worker.shutdown()

    def worker_busy_loop(self):
        while (message := self.requests.dequeue()) is not None:
            output = getattr(self.worker.worker, message[0])(message[1])
            if self.ahead:
                self.outputs.put(output)
            else:
                self.enqueue_output(output)

    def async_output_busy_loop(self):
        while True:
            self.enqueue_output(self.outputs.get())

    def enqueue_output(self, output):
        if isinstance(output, AsyncModelRunnerOutput):
            output = output.get_output()
        self.responses.enqueue(output)

    def shutdown(self):
        pass
