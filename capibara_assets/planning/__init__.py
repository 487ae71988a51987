"""Training plans computed before anything runs: memory, step time and cost of a training on a hardware target.

Imports `modeling` (sizes, safetensors headers, the JAX step's shapes), `storage`, `deployment` and `domains`; torch and
jax only inside functions. Public names: `api`.
"""
