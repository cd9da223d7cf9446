"""The experiments, one file each: the code is the lesson."""
