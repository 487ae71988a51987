"""Checkpoints on disk: the store, its encryption, foreign formats, inspection and retention.

Imports `modeling`, `storage`, `processes` and what lies below them; never Dagster.
"""
