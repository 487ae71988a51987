"""The trainer of TPU plans: runs a plan's JAX configuration with the same step that the planner compiled with XLA.

`voter` trains a voter of a request with it; all else runs alone, on each host of a slice (`python -m`). Imports
`planning`, `modeling.jax`, `datasets`, of the PyTorch training its data, schedule, progress and results, and what lies
below them.
"""
