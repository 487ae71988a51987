"""From a record to everything made from it, and back; forgetting a record.

Imports every library below it; never Dagster at import.
"""
