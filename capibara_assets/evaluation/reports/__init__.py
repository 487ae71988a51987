"""Comparisons for people: the items a model did worst on, and a training's epochs side by side.

Imports `report`, `answering`, `grading` and `statistics`.
"""
