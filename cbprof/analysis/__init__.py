"""What a trace means: intervals, states, gaps, steps. Integer nanoseconds on numpy columns; never torch."""
