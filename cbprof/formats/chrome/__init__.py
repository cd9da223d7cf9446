"""What is in cbprof's own trace.json, a Chrome Trace Event file, and how is it written and read?"""
