"""The event log of a training and its readers: metrics, progress lines; and measurement of resource usage.

Imports nothing else of `training`.
"""
