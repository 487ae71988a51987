"""Robust aggregation rules, their compiled kernels, and differential privacy of a mean: plain functions on vectors.

Imports `modeling` and what lies below it, nothing of its siblings.
"""
