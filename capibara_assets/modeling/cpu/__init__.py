"""Layers rewritten for CPUs: fused attention, fused LoRA, and column-major weights for generation.

Imports `light_imports` only.
"""
