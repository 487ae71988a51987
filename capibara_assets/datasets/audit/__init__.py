"""Audit of published examples: quality by kind and source, a sample to read, and the reader's verdicts.

Imports `datasets/code` and `datasets/kinds`; `datasets/examples.py` leaves out what the verdicts drop.
"""
