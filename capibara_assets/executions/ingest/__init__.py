"""From a folder of logs to tables: which files are new, reading them in parallel, each execution exactly once.

Imports `formats`, `secrets`, `labels` and `patterns`.
"""
