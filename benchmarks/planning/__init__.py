"""Benches of plans, and the tools that made tables in `resources/`: the calibration, compiled cases, T5X's names."""
