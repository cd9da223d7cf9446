"""Where does a step begin in a profiler's trace, which does not say so itself?"""
