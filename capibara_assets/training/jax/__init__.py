"""The trainer of TPU plans: runs a plan's JAX configuration with the same step that the planner compiled with XLA.

Imports `planning`, `modeling.jax`, `datasets` and what lies below them; nothing of the PyTorch training.
"""
