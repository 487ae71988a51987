"""Scores and their uncertainty: bootstrap, paired tests, calibration, text metrics, figures per contender.

Imports `answering`, `grading`, `items` and `decision_rule`.
"""
