"""Lineage of records, examples, adapters and checkpoints in both directions; forgetting a record.

Imports every library below it; never Dagster at import.
"""
