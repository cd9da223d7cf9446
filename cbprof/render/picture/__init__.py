"""What every picture starts from, whatever draws it: states, coverage, lanes, in one geometry."""
