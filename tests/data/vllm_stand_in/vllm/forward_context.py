from contextlib import contextmanager
from enum import Enum


class CUDAGraphMode(Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2


@contextmanager
def set_forward_context(attn_metadata, vllm_config, cudagraph_runtime_mode=CUDAGraphMode.NONE, **kwargs):
    yield
