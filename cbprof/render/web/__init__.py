"""Pages of one file that work offline: the timeline, the report, the ranks."""
