"""Plans before anything runs: memory, time and cost of a training on a hardware target.

Imports `modeling` sizes, `deployment` and what lies below; never torch at import.
"""
