"""cbprof: how long the GPU waited for the CPU, what it waited for, and what removing it would bring."""

__version__ = "0.1.0"
