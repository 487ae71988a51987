"""Evaluation: held-out items, answers, grades, statistics, the promotion decision, the router, and serving.

Imports `training`, `checkpoints`, `modeling`, `datasets`, `executions` and what lies below them; never Dagster.
Public names: `api`.
"""
