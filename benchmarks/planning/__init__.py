"""Benches of plans, and the fit to published runs that made `resources/planning/calibration.yaml`."""
