"""When did the work between two points of a stream run, in the host's nanoseconds?"""
