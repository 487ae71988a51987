"""What a training will do, before it starts: memory, time, files, cost, and what stands in its way.

Imports `data`, `loop` and `strategies`.
"""
