"""Examples from files of one's own: reading, formats, splits, and how they join a domain's dataset.

Imports `code`, `duplicates`, `kinds`, `tokens` and `groups`.
"""
