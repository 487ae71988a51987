"""Prediction of a training step's time: roofline terms, fitted efficiencies, and an interval.

Imports `accounting`, `hardware`, `models` and `workload`.
"""
