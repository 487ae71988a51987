"""Analysis of recorded code: names, comments, structural keys, and dependencies on earlier cells.

Imports nothing else of `datasets`; its other folders build on it.
"""
