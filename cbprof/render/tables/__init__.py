"""Results as tables, for terminals, pages, pull requests and spreadsheets."""
