"""Training sets from verified executions and imported files: groups, splits, examples, routing, tokens.

Imports `executions`, `storage`, `deployment` and what lies below them; never Dagster or torch at import.
"""
