"""What do AMD's profilers write: the records of rocprofiler-sdk, as a rocpd database or as JSON?"""
