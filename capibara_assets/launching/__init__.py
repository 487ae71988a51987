"""Where training runs: a local process group or a Kubernetes pod, through Dagster Pipes.

May import Dagster; imports `training` requests, `processes` and `deployment`.
"""
