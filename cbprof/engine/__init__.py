"""The reference continuous-batching engine, sync and async."""
