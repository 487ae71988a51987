"""The trainer of TPU plans: runs a plan's JAX configuration with the very step that XLA compiled.

Imports `modeling.jax` and `planning`, nothing else of `training`.
"""
