"""Votes of several organisations: a round defined in advance, and signed messages exchanged at a shared place.

Builds on `agree`, `election` and `certificates`; nothing else in `consensus` imports it.
"""
