"""What a fleet of traces means: small summaries of its ranks, and what they say when they are laid side by side."""
