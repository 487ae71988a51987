"""Benches of the whole graph: runs in fresh homes, bad voters in them, loading the definitions."""
