"""trace.json: the Chrome Trace Event file that cbprof writes and reads."""
