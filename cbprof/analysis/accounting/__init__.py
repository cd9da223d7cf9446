"""Which stretch of time, and how is it spent: the definitions of docs/accounting.md, each in one place."""
