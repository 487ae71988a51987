"""Held-out questions, answers, grades, statistics and the decision; the router; what is served.

Imports `training`, `checkpoints`, `modeling`, `datasets`, `executions` and what lies below them; never Dagster.
Public names: `api`.
"""
