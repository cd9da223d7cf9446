"""Where the engine runs: on CUDA, or on a child process that plays the GPU. The tests have a simulated device."""
