"""A result in every form that it is shown in: in a notebook, on a terminal, for a pull request, as JSON, as data frame.

Each view is small and frozen, and holds the analysis' own result in ``full`` for whatever else is asked of it. It draws
itself in a notebook; ``print()`` shows it as the command line does.
"""
