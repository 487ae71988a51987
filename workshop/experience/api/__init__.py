"""Tasks of the domain api."""
