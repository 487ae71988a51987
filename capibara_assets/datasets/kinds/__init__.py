"""The kinds of examples, one module each (solve, repair, explain, predict, apply), and their common parts.

Imports `code`, the recipe and the schema of `datasets`; a new kind is a new module here.
"""
