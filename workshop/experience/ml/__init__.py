"""Tasks of the domain ml."""
