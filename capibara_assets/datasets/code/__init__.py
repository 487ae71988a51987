"""Analysis of recorded code: parts of a cell, names, comments, structural keys, and the earlier cells that it needs.

Imports `executions` only; the other folders of `datasets` build on it.
"""
