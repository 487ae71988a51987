"""Launching of trainings from Dagster, in a local process group or a Kubernetes pod, through Pipes.

May import Dagster; imports `training` (progress and reporting), `planning` (targets), `processes` and `deployment`.
Public names: `api`.
"""
