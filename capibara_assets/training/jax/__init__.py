"""The trainer of TPU plans: runs a plan's JAX configuration with the very step that XLA was asked about."""
