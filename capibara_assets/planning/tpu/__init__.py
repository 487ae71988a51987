"""TPU plans: the search over meshes and batches, memory as XLA allocates it, and the plan's files.

Imports `prediction`, `hardware`, `writers` and the modules directly in `planning`.
"""
