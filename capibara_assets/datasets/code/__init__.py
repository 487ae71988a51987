"""Analysis of recorded code: names, comments, structural keys, and the earlier cells that it needs.

Imports nothing else of `datasets`; its other folders build on it.
"""
