"""Where training runs: a local process group or a Kubernetes pod, through Dagster Pipes.

May import Dagster; imports `training` (progress and reporting), `planning` (targets), `processes` and `deployment`.
"""
