"""The device without a GPU: a child process plays it."""
