"""Benches: the figures behind the promises, `python -m benchmarks NAME --json`, one folder a stage.

They import the package, and drills of its tests; nothing in the package imports them, and the wheel holds none.
"""
