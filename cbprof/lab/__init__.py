"""The lab: small experiments that make each idea of asynchronous batching happen, and measure it."""
