"""TPU configurations: the search over meshes and batches, memory as XLA allots it, and the plan's files.

Imports `prediction`, `hardware` and `writers`.
"""
