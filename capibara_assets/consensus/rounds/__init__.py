"""Votes of several organisations: a round that is written beforehand, and signed letters at a place all can reach.

Builds on `agree`, `election` and `certificates`; nothing else in `consensus` imports it.
"""
