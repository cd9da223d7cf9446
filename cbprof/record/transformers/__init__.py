"""transformers' own continuous batching, recorded from outside."""
