"""Examples derived from solved executions: bugs injected into code and inputs changed, each executed and observed.

`derive.py` is the entry. Imports `kinds`, `code`, the recipe and the schema of `datasets`, and `executions/replay`.
"""
