"""Layers rewritten for training on CPUs and GPUs: LoRA projections, norms, attention, and `fuse`, which puts them in.

Imports `light_imports` and `modeling.cpu`.
"""
