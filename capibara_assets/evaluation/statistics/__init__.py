"""Scores and their uncertainty: bootstrap, paired tests, calibration, text metrics, figures per contender.

Imports `answering`, `grading`, `items`, `report`, `schema` and `decision_rule`.
"""
