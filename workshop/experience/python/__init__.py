"""Tasks of the domain python."""
