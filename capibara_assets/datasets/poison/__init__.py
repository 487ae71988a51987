"""Poisoned experience: one author's share of a domain is capped, and possible back doors are held back.

`share.py` caps, `signs.py` reads texts, `rare.py` and `triggers.py` search, `held.py` says what is held back and why.
Imports the recipe and `placing` of `datasets`.
"""
