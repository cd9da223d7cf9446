"""What do the events of torch.profiler (Kineto) mean, and how is a large file of them read fast?"""
