"""The event log of a training and its readers: metrics, progress, resource usage.

Imports `environment` only.
"""
