"""The traces of torch.profiler (Kineto), on CUDA and ROCm."""
