"""Anatomy of a recorded cell: solution, helpers, tests and scaffolding, told apart by the flow of values.

Imports `datasets/code` alone.
"""
