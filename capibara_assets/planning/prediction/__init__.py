"""Step time from first principles: roofline terms, fitted efficiencies, and the interval around a prediction.

Imports `accounting`, `hardware`, `models` and `workload`.
"""
