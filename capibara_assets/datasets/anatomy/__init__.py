"""Anatomy of recorded cells: separates solution, helpers, tests and scaffolding by data flow.

Imports `datasets/code` alone.
"""
