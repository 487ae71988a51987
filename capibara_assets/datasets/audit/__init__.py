"""How good published examples are: shares by kind and source, a sample for a person to read, that person's verdicts.

Imports `datasets/code` and `datasets/kinds`; `datasets/examples.py` leaves out what the verdicts drop.
"""
