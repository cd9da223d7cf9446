"""A stand-in for vLLM: its classes and the order of its calls, as of 0.23 and 0.32, with arithmetic for a model.

Written for the tests of cbprof from what vLLM does; no code of vLLM's is in it.
"""

from vllm.version import __version__  # noqa: F401
