"""Inspection of checkpoints: description of one, differences of two, and attestation of an adapter.

Imports `store`, `content` and `retention`; only commands, `lineage` and `consensus` import it.
"""
