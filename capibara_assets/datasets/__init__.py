"""Training examples from verified executions: groups, splits, examples, routing, tokens.

Imports `playbooks`, `executions`, `storage` and what lies below them; never Dagster or torch at import.
"""
