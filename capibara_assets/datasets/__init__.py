"""Training sets from verified executions and imported files: groups, splits, examples, routing, tokens.

Imports `playbooks`, `executions`, `storage` and what lies below them; never Dagster or torch at import.
"""
