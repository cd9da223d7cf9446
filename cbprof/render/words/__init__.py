"""What a result says in sentences."""
