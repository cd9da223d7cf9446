"""Where the engine runs: CUDA, a child process that plays the GPU, or a simulation for tests."""
