"""Reports for readers: the items a model did worst on, and a comparison of a training's epochs.

Imports `report`, `answering`, `grading` and `statistics`.
"""
