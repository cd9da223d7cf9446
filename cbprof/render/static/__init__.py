"""Pictures for paper: PNG, SVG and PDF."""
