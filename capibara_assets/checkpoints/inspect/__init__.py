"""Answers about checkpoints: what one holds, how two differ, whether an adapter is sane.

Imports `store`, `content` and `retention`; only commands, `lineage` and `consensus` import it.
"""
