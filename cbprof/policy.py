"""The numbers of the batching policy, which the engine follows and a prediction replays."""

WATERMARK_PCT = 1
"""The part of the KV cache that stays free beside running requests when another is seated, as in vLLM."""
