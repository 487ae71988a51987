"""Layers rewritten for processors: fused attention, fused LoRA, and weights laid out for generation.

Imports `light_imports` only.
"""
