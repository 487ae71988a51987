"""The router: picks the expert that answers a prompt, with its recipe, features, calibration and report.

Imports `statistics`.
"""
