"""Merges of whole checkpoints and of domain experts: methods, compiled kernels, and the streaming writer.

Imports `aggregation` and `choose`; `mixture` builds on it.
"""
