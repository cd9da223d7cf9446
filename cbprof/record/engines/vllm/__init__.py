"""vLLM, recorded in each of its processes."""
