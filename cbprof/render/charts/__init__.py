"""Charts of a run as plotly figures, for notebooks and for the report page."""
