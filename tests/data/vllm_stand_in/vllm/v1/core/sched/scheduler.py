from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs


class Scheduler:
    """First come, first served, all at once; with ``ahead`` a batch may be scheduled before the last one is back."""

    def __init__(self, ahead):
        self.ahead = ahead
        self.requests = {}

    def add_request(self, request):
        self.requests[request.request_id] = request

    def has_requests(self):
        return bool(self.requests)

    def schedule(self, throttle_prefills=False):
        new, cached, counts, last = [], CachedRequestData(), {}, {}
        for request in self.requests.values():
            if request.scheduled >= request.max_tokens:
                continue
            if not request.scheduled:
                new.append(NewRequestData(request.request_id, 0))
                counts[request.request_id] = len(request.prompt)
            else:
                cached.req_ids.append(request.request_id)
                cached.num_computed_tokens.append(len(request.prompt) + request.scheduled - 1)
                cached.num_output_tokens.append(request.scheduled)
                counts[request.request_id] = 1
            last[request.request_id] = (request.prompt, request.scheduled)
            request.scheduled += 1
        return SchedulerOutput(new, cached, counts, sum(counts.values()), last_tokens=last)

    def update_from_output(self, scheduler_output, model_runner_output):
        outputs = []
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests[name]
            token = model_runner_output[name]
            request.output.append(token)
            over = len(request.output) == request.max_tokens
            outputs.append(EngineCoreOutput(name, [token], "length" if over else None))
            if over:
                del self.requests[name]
        return {0: EngineCoreOutputs(outputs)} if outputs else {}
