"""The lean decoder of the Llama, Qwen2 and Qwen3 families: merged projections, fused kernels."""
