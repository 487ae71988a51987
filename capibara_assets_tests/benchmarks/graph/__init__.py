"""Benches of the whole graph."""
