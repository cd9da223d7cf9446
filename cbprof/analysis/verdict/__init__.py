"""What bounds a run, how well host and device overlap, and what users of the model notice."""
