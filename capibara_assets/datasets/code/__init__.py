"""Code as data: its parts, names, comments, and the earlier cells that it needs.

Imports `executions` only; the other folders of `datasets` build on it.
"""
