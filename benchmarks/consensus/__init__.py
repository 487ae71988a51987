"""Benches of aggregation and merges; below it games under attack and what privacy costs."""
