"""Base models and LoRA adapters: loading, target modules, adapter arithmetic, losses, CPU layers, the JAX step.

Imports `datasets.tokens`, `storage` and what lies below them; torch only in the modules that need it.
Public names: `api`.
"""
