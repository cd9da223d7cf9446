"""The continuous batching of transformers, attached, wrapped and put back."""
