"""Assertions of tests split into values that a run reports and a comparison outside it, for verification and grading.

Imports `datasets/code` alone, and what runs of sessions give.
"""
