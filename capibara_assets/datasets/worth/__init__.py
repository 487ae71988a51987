"""Whether an example is worth learning, judged by its texts alone: `worth.unworthy` asks, one module a class of faults.

Imports `kinds`, `code` and `sqlglot`; a new class of faults is a function here and its reason in `unworthy`.
"""
