"""Tasks of the domain javascript."""
