"""Base models and adapters: loading, LoRA targets and arithmetic, losses, layers for CPUs, the JAX step.

Imports `datasets`, `storage` and what lies below them; torch only in modules that need it.
"""
