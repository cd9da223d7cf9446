from dataclasses import dataclass, field


@dataclass
class EngineCoreOutput:
    request_id: str
    new_token_ids: list
    finish_reason: str | None = None


@dataclass
class EngineCoreOutputs:
    outputs: list


@dataclass
class Request:
    request_id: str
    prompt: list
    max_tokens: int
    scheduled: int = 0
    output: list = field(default_factory=list)
