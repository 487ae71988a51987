"""Static checks of whether an example is worth learning; `worth.unworthy` runs one module per class of faults.

Imports `kinds`, `code` and `sqlglot`; a new class of faults is a function here and its reason in `unworthy`.
"""
