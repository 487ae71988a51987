"""Robust aggregation rules, pre-aggregation and their compiled kernels: plain functions on vectors.

Imports `modeling` and what lies below it, nothing of its siblings.
"""
