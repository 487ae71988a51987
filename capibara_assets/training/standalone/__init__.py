"""Trainings outside the asset graph: recipe and data to an output folder, with launch scripts.

Imports `supervisor`, `plan` and what lies below them.
"""
