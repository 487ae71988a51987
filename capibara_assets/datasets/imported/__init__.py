"""Examples imported from files: reading, formats, splits, and merging with a domain's own examples.

Imports `code`, `duplicates`, `kinds`, `tokens`, `groups`, the recipe and the schema of `datasets`.
"""
