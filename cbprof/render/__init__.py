"""How a trace looks: the timeline, and tables for the terminal."""
