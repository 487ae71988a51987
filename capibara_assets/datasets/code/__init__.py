"""Analysis of recorded code: parts of a cell, names, comments, structural keys, and the earlier cells that it needs.

Imports nothing else of `datasets`; its other folders build on it.
"""
